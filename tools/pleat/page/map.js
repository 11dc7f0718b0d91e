// The map: each segment in rows of one scale, its blocks in the colours of their classes.
const MAP_ROWS = 28;
const MAP_WIDTH = 1000;
const BLOCK = 0, CHUNK = 1, PAYLOAD = 2;
const map = {pieces: [], current: -1};

function mapTip(piece) {
  const [kind, , bytes, of, op, line] = piece;
  if (kind === CHUNK) return ['room for payloads', size(bytes)];
  return [`${data.classes[of]}, ${size(bytes)}`, opText(op), texts[line]];
}

// Bytes in a row: a power of two of MiB, so that all segments take a page at most.
function mapScale(segments) {
  const longest = Math.max(1, ...segments.map((one) => one.bytes));
  const all = segments.reduce((sum, one) => sum + one.bytes, 0);
  let row = 1 << 20;
  const rows = () => segments.reduce((sum, one) => sum + Math.ceil(one.bytes / row), 0);
  while (row < longest && (row < all / MAP_ROWS || rows() > MAP_ROWS)) row *= 2;
  return row;
}

function mapRow(segment, from, scale) {
  const until = Math.min(from + scale, segment.bytes);
  const unit = MAP_WIDTH / scale;
  const picture = svg('svg', {viewBox: `0 0 ${MAP_WIDTH} 15`, preserveAspectRatio: 'none'});
  picture.append(svg('rect', {class: 'back', x: 0, y: 0.5, width: (until - from) * unit, height: 14, 'vector-effect': 'non-scaling-stroke'}));
  for (const piece of segment.pieces) {
    const [kind, begin, bytes, of] = piece;
    if (begin >= until) break;
    if (begin + bytes <= from) continue;
    const left = Math.max(begin, from), right = Math.min(begin + bytes, until);
    const gap = 0.8;  // between neighbours
    const wide = Math.max((right - left) * unit - gap, 0.3);
    const shape = svg('rect', {x: ((left - from) * unit).toFixed(3), width: wide.toFixed(3), y: kind === CHUNK ? 1 : 2,
      height: kind === CHUNK ? 13 : 11, fill: kind === CHUNK ? 'var(--c-chunk)' : fill(CLASSES[of]), 'data-index': map.pieces.indexOf(piece)});
    picture.append(shape);
  }
  return picture;
}

function drawMap() {
  const root = byId('map-rows');
  const {segments, left_out: leftOut, left_out_bytes: leftBytes} = device.map;
  map.current = -1;
  map.pieces = segments.flatMap((one) => one.pieces);
  const hint = byId('map-hint');
  if (segments.length === 0) {
    hint.textContent = '';
    root.replaceChildren('The trace saw no segment being reserved, or it has no such moment.');
    return;
  }
  const scale = mapScale(segments);
  const moment = device.moment;
  hint.textContent = `A full row is ${size(scale)}.` +
    (moment.segments > 0 ? ` ${size(moment.free)} of ${size(moment.segments)} in the segments that the trace saw being reserved are free ` +
      `${momentWord()}, the largest gap has ${size(moment.largest_gap)}.` : '') +
    (segments.some((one) => one.by_blocks) ? ' Segments of before the trace are shown from their first block to their last.' : '') +
    ' Arrows move from block to block.' +
    (leftOut ? ` The ${count(leftOut)} smallest blocks, ${size(leftBytes)}, are left out.` : '');
  const rows = [];
  // Numbers by place: looking each up in a list would take the square of their count.
  const number = new Map(map.pieces.map((piece, index) => [piece, index]));
  map.pieces.indexOf = (piece) => number.get(piece);
  for (const segment of segments) {
    for (let from = 0; from < segment.bytes; from += scale) {
      if (rows.length >= 400) break;  // a page that nobody can read
      rows.push(element('div', {class: 'row'},
        element('span', {title: segment.address}, from > 0 ? '' : (segment.by_blocks ? 'at least ' : '') + size(segment.bytes)), mapRow(segment, from, scale)));
    }
  }
  const present = new Set(map.pieces.filter((piece) => piece[0] !== CHUNK).map((piece) => piece[3]));
  const legend = element('div', {class: 'legend'}, ...STACK_ORDER.filter((one) => present.has(one.index)).map((one) =>
    element('span', {}, swatch(one), one.name)));
  if (map.pieces.some((piece) => piece[0] === CHUNK))
    legend.append(element('span', {}, element('span', {class: 'swatch', style: 'background:var(--c-chunk)'}), 'room for payloads'));
  root.replaceChildren(...rows, legend);
}

function markMap() {
  const root = byId('map-rows');
  for (const shape of root.querySelectorAll('.current')) shape.classList.remove('current');
  if (map.current < 0) return;
  const shapes = root.querySelectorAll(`rect[data-index="${map.current}"]`);
  shapes.forEach((shape) => shape.classList.add('current'));
  if (shapes.length === 0) return;
  const box = shapes[0].getBoundingClientRect();
  showTip(mapTip(map.pieces[map.current]), box.left, box.bottom);
}

function listenToMap() {
  const root = byId('map-rows');
  withTips(root, (target) => target.dataset?.index === undefined ? null : mapTip(map.pieces[Number(target.dataset.index)]));
  root.addEventListener('keydown', (event) => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (event.key === 'Escape') { map.current = -1; hideTip(); }
    else if (step) map.current = Math.min(map.pieces.length - 1, Math.max(0, map.current + step));
    else return;
    event.preventDefault();
    markMap();
  });
  root.addEventListener('blur', () => { map.current = -1; markMap(); hideTip(); });
}
