// The flame graph: rectangles from the root down, as wide as their bytes.
const FLAME_ROW = 20;
const flame = {children: [], zoom: 0, current: 0, shapes: new Map(), boxes: new Map()};

function flameText(index) {
  const text = texts[device.flame.text[index]];
  return device.flame.class[index] >= 0 ? text : shortLine(text);
}
function flameTip(index) {
  const tree = device.flame;
  const lines = [texts[tree.text[index]], size(tree.bytes[index]) + ', ' + share(tree.bytes[index], tree.bytes[0]) + ' of live'];
  if (tree.class[index] >= 0) lines.push(data.classes[tree.class[index]]);
  return lines;
}
function flameAncestors(index) {
  const path = [index];
  while (index !== 0) path.unshift(index = device.flame.parent[index]);
  return path;
}

function setUpFlame() {
  const tree = device.flame;
  flame.children = tree.parent.map(() => []);
  for (let i = 1; i < tree.parent.length; ++i) flame.children[tree.parent[i]].push(i);
  // What has no room of its own stands last.
  const isOther = (index) => texts[tree.text[index]] === '(other)';
  for (const list of flame.children) list.sort((a, b) => isOther(a) - isOther(b) || tree.bytes[b] - tree.bytes[a] || a - b);
  flame.zoom = flame.current = 0;
}

// Where each visible node is: [left, width, depth], in pixels and rows.
function flameLayout(width) {
  const tree = device.flame;
  const boxes = new Map();
  const path = flameAncestors(flame.zoom);
  path.forEach((index, depth) => boxes.set(index, [0, width, depth]));
  const visit = [flame.zoom];
  while (visit.length > 0) {
    const index = visit.pop();
    const [left, room, depth] = boxes.get(index);
    let at = left;
    for (const child of flame.children[index]) {
      const wide = tree.bytes[index] > 0 ? room * tree.bytes[child] / tree.bytes[index] : 0;
      if (wide >= 0.4) { boxes.set(child, [at, wide, depth + 1]); visit.push(child); }
      at += wide;
    }
  }
  return boxes;
}

function fitting(text, width) {
  const letters = Math.floor((width - 8) / 6.6);
  if (letters < 3) return '';
  return text.length <= letters ? text : text.slice(0, letters - 1) + '\u2026';
}

// Dark ink on light colours, light ink on dark ones.
function inkOn(variable) {
  const value = colour(variable);
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(value.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? '#10131a' : '#ffffff';
}

function drawFlame() {
  const root = byId('flame-graph');
  const tree = device.flame;
  if (tree.bytes.length < 2) {
    root.replaceChildren('Nothing was live at that moment, or the filter leaves nothing.');
    return;
  }
  const width = Math.max(200, root.clientWidth - 14);
  flame.boxes = flameLayout(width);
  let rows = 0;
  for (const box of flame.boxes.values()) rows = Math.max(rows, box[2] + 1);
  const picture = svg('svg', {viewBox: `0 0 ${width} ${rows * FLAME_ROW}`, height: rows * FLAME_ROW});
  const inks = CLASSES.map((one) => inkOn(one.variable));
  const above = new Set(flameAncestors(flame.zoom));
  flame.shapes.clear();
  for (const [index, [left, wide, depth]] of flame.boxes) {
    const group = svg('g', {'data-index': index});
    if (above.has(index) && index !== flame.zoom) group.classList.add('dim');
    const of = tree.class[index];
    group.append(svg('rect', {x: left.toFixed(2), y: depth * FLAME_ROW, width: wide.toFixed(2), height: FLAME_ROW - 1, rx: 2,
      fill: of >= 0 ? fill(CLASSES[of]) : 'var(--frame)'}));
    const words = fitting(flameText(index), wide);
    if (words) {
      const text = svg('text', {x: (left + 4).toFixed(2), y: depth * FLAME_ROW + 14, fill: of >= 0 ? inks[of] : 'var(--frame-ink)'});
      text.textContent = words;
      group.append(text);
    }
    flame.shapes.set(index, group);
    picture.append(group);
  }
  root.replaceChildren(picture);
  markFlame();
  drawFlamePath();
}

function drawFlamePath() {
  const path = byId('flame-path');
  if (flame.zoom === 0) {
    path.replaceChildren(`${size(device.flame.bytes[0])} ${momentWord()}`);
    return;
  }
  const parts = [];
  for (const index of flameAncestors(flame.zoom)) {
    const button = element('button', {type: 'button', title: texts[device.flame.text[index]]}, index === 0 ? 'all' : flameText(index));
    button.addEventListener('click', () => zoomFlame(index));
    parts.push(button, '\u203a');
  }
  parts.pop();
  // A deep path would push the graph away: its beginning and its end are enough.
  const shown = parts.length > 13 ? [...parts.slice(0, 2), '\u2026', ...parts.slice(-10)] : parts;
  path.replaceChildren(...shown, ` ${size(device.flame.bytes[flame.zoom])}`);
}

function zoomFlame(index) {
  flame.zoom = flame.current = index;
  hideTip();
  drawFlame();
}
function markFlame() {
  for (const group of byId('flame-graph').querySelectorAll('.current')) group.classList.remove('current');
  const group = flame.shapes.get(flame.current);
  if (!group || document.activeElement !== byId('flame-graph')) return;
  group.classList.add('current');
  group.parentNode.append(group);  // over its neighbours
  const box = group.getBoundingClientRect();
  showTip(flameTip(flame.current), box.left, box.bottom - 8);
}

function flameKey(event) {
  const tree = device.flame;
  const visible = (list) => list.filter((index) => flame.boxes.has(index));
  const current = flame.current;
  let to = current;
  if (event.key === 'ArrowUp') to = tree.parent[current];
  else if (event.key === 'ArrowDown') to = visible(flame.children[current])[0] ?? current;
  else if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') {
    // Neighbours of the same depth, whoever their parent is.
    const depth = flame.boxes.get(current)?.[2];
    const row = [...flame.boxes].filter(([, box]) => box[2] === depth).sort((a, b) => a[1][0] - b[1][0]).map((one) => one[0]);
    to = row[row.indexOf(current) + (event.key === 'ArrowLeft' ? -1 : 1)] ?? current;
  } else if (event.key === 'Home') to = flame.zoom;
  else if (event.key === 'Enter') { event.preventDefault(); return zoomFlame(current); }
  else if (event.key === 'Escape') { event.preventDefault(); return zoomFlame(tree.parent[flame.zoom]); }
  else return;
  event.preventDefault();
  flame.current = to;
  markFlame();
}

function listenToFlame() {
  const root = byId('flame-graph');
  const indexOf = (target) => target.closest?.('g[data-index]')?.dataset.index;
  withTips(root, (target) => { const index = indexOf(target); return index === undefined ? null : flameTip(Number(index)); });
  root.addEventListener('click', (event) => {
    const index = indexOf(event.target);
    if (index !== undefined) zoomFlame(Number(index) === flame.zoom ? device.flame.parent[flame.zoom] : Number(index));
  });
  root.addEventListener('keydown', flameKey);
  root.addEventListener('focus', markFlame);
  root.addEventListener('blur', () => { hideTip(); markFlame(); });
}
