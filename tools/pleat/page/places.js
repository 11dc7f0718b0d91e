// Tables of places: live bytes, compression, growth; of each an operator or a line.
function placeCell(line, full) {
  return element('span', {title: full}, line);
}
const lineColumn = (row) => row.rest ? '(all others)' : placeCell(lineText(row.line), texts[row.line]);
const opColumn = (row) => row.rest ? '' : opText(row.op);

function placeColumns(byLine) {
  const all = device.moment ? device.moment.live : 0;
  const live = (row) => row.classes.reduce((sum, pair) => sum + pair[1], 0);
  const most = Math.max(1, ...(byLine ? device.by_line : device.by_operator).map(live));
  const bar = (row) => {
    const bytes = [];
    for (const [index, value] of row.classes) bytes[index] = value;
    const sum = live(row);
    if (sum <= 0) return '';
    const inner = stackBar(bytes, sum, true);
    inner.style.width = Math.max(2, 100 * sum / most) + '%';
    return element('div', {class: 'bar-cell'}, inner);
  };
  const when = momentWord();
  const columns = [
    {title: `live ${when}`, value: live, show: (row) => live(row) ? size(live(row)) : ''},
    {title: 'of live', value: live, show: (row) => live(row) ? share(live(row), all) : ''},
    ...(device.what_if ? [{title: data.what_if, value: (row) => row.what_if, show: (row) => row.what_if ? size(row.what_if) : ''}] : []),
    {title: 'made of', value: live, show: bar},
    {title: 'blocks', value: (row) => row.blocks, show: (row) => row.blocks ? count(row.blocks) : ''},
    {title: 'allocated in all', value: (row) => row.allocated, show: (row) => row.allocated ? size(row.allocated) : ''},
    {title: 'times', value: (row) => row.allocations, show: (row) => row.allocations ? count(row.allocations) : ''},
    {title: 'saved in all', value: (row) => row.saved, show: (row) => row.saved ? size(row.saved) : ''},
  ];
  const op = {title: 'operator', text: true, value: (row) => texts[row.op], show: opColumn};
  const line = {title: 'line', text: true, value: (row) => shortLine(texts[row.line]), show: lineColumn};
  return byLine ? [line, op, ...columns] : [op, ...columns];
}

function drawPlaces() {
  const search = (row) => texts[row.op] + ' ' + (row.line === undefined ? '' : texts[row.line]) + ' ' +
    row.classes.map((pair) => data.classes[pair[0]]).join(' ');
  byId('places-line').replaceChildren(makeTable(placeColumns(true), device.by_line,
    {search, sort: 2, name: 'source lines'}));
  byId('places-operator').replaceChildren(makeTable(placeColumns(false), device.by_operator,
    {search, sort: 1, name: 'operators'}));
}

// Tabs: one panel at a time, arrows move between them.
function setUpTabs() {
  const tabs = [byId('tab-line'), byId('tab-operator')];
  const choose = (tab) => {
    for (const one of tabs) {
      one.setAttribute('aria-selected', String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
      byId(one.getAttribute('aria-controls')).hidden = one !== tab;
    }
  };
  tabs.forEach((tab, index) => {
    tab.addEventListener('click', () => choose(tab));
    tab.addEventListener('keydown', (event) => {
      if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
      const other = tabs[1 - index];
      choose(other);
      other.focus();
    });
  });
  choose(tabs[0]);
}

function drawCompression() {
  const to = byId('compression-body');
  const all = device.compression.all;
  if (all.saves === 0) {
    const left = leftAloneParts();
    to.replaceChildren(...(left.length > 0 ? left :
      [element('p', {class: 'hint'}, 'Nothing was saved for backward, or nothing is known of it.')]));
    return;
  }
  const words = [`${count(all.saves)} tensors were saved for backward, ${size(all.saved)} over the run.`];
  words.push(all.encoded === 0 ? 'None was compressed.' :
    `${count(all.encoded)} were compressed, ${size(all.source)} to ${size(all.to)} (${ratio(all.source, all.to)}).`);
  if (all.encode_ms > 0) words.push(`That took ${all.encode_ms.toFixed(1)} ms.`);
  words.push(`${count(all.restores)} restores gave back ${size(all.restored)}.`);
  if (all.restore_ms > 0) words.push(`That took ${all.restore_ms.toFixed(1)} ms.`);
  if (all.raws > 0) words.push(`${count(all.raws)} were left raw, ${size(all.raw)}.`);
  const why = (row) => row.why.map(([text, bytes]) => `${texts[text]} (${size(bytes)})`).join(', ');
  const bytes = (title, key) => ({title, value: (row) => row[key], show: (row) => row[key] ? size(row[key]) : ''});
  const time = (title, key) => ({title, value: (row) => row[key], show: (row) => row[key] > 0 ? row[key].toFixed(1) + ' ms' : ''});
  const columns = [
    {title: 'line', text: true, value: (row) => shortLine(texts[row.line]), show: lineColumn},
    {title: 'operator', text: true, value: (row) => texts[row.op], show: opColumn},
    {title: 'tensors', value: (row) => row.saves, show: (row) => count(row.saves)},
    bytes('saved', 'saved'), bytes('compressed', 'source'), bytes('to', 'to'),
    {title: 'ratio', value: (row) => row.to > 0 ? row.source / row.to : 0, show: (row) => row.to > 0 ? ratio(row.source, row.to) : ''},
    time('took', 'encode_ms'), bytes('restored', 'restored'), time('took', 'restore_ms'), bytes('left raw', 'raw'),
    {title: 'raw, though', text: true, wrap: true, value: why, show: why},
  ];
  const parts = [element('p', {}, words.join(' '))];
  if (device.compression.reasons.length > 0) {
    const rows = [...device.compression.reasons].sort((a, b) => b[2] - a[2]);
    parts.push(plainTable(['left raw, though decided as', 'tensors', 'bytes'],
      rows.map(([text, records, held]) => [texts[text], count(records), size(held)]), (index) => index === 0));
  }
  parts.push(makeTable(columns, device.compression.lines,
    {search: (row) => texts[row.op] + ' ' + texts[row.line] + ' ' + why(row), sort: 3, name: 'what was saved'}));
  to.replaceChildren(...parts, ...leftAloneParts());
}

function drawGrowthTable() {
  const to = byId('growth-body');
  const growth = device.growth;
  const hint = (text) => to.replaceChildren(element('p', {class: 'hint'}, text));
  if (!growth) return hint('Too few steps to tell what grows: five are needed.');
  if (growth.lines.length === 0) return hint(`No line leaves blocks behind in half of the ${count(growth.steps)} steps that were looked at, or more.`);
  const columns = [
    {title: 'line', text: true, value: (row) => shortLine(texts[row.line]), show: lineColumn},
    {title: 'operator', text: true, value: (row) => texts[row.op], show: opColumn},
    {title: 'a step', value: (row) => row.per_step, show: (row) => size(row.per_step)},
    {title: 'bytes that stay', value: (row) => row.bytes, show: (row) => size(row.bytes)},
    {title: 'blocks', value: (row) => row.blocks, show: (row) => count(row.blocks)},
    {title: 'in steps', value: (row) => row.steps, show: (row) => `${count(row.steps)} of ${count(growth.steps)}`},
  ];
  to.replaceChildren(
    element('p', {class: 'notice'}, `Memory grows by ${size(growth.per_step)} a step: these lines made blocks that were still there at the end.`),
    makeTable(columns, growth.lines, {search: (row) => texts[row.op] + ' ' + texts[row.line], sort: 2, name: 'what grows'}));
}
