// Modules, groups, and what was saved without Pleat.
function figureColumns() {
  const bytes = (title, key) => ({title, value: (row) => row[key], show: (row) => row[key] ? size(row[key]) : ''});
  const where = (row) => row.largest ? [opText(row.op), lineText(row.line)].join(', ') : '';
  return {
    retained: bytes(`for backward ${momentWord()}`, 'retained'),
    own: bytes('own', 'own_retained'),
    live: bytes(`live ${momentWord()}`, 'live'),
    rest: [
      bytes('saved a step', 'saved_in_step'),
      {title: 'left of it', value: (row) => row.saved > 0 ? row.left / row.saved : 0, show: (row) => share(row.left, row.saved)},
      bytes('temporary at most', 'temporary'),
      bytes('largest tensor', 'largest'),
      {title: 'made by', text: true, value: where, show: where},
    ],
  };
}

function modulesTable({rows, left_out: leftOut}) {
  // The order of the tree is that of the rows.
  const order = new Map(rows.map((row, index) => [row, index]));
  const path = (row) => row.depth === 0 ? '(in no module)' : texts[row.path];
  const name = (row) => {
    const shown = element('span', {title: path(row)}, row.depth > 1 ? path(row).slice(path(row).lastIndexOf('.') + 1) : path(row));
    shown.style.paddingLeft = Math.max(0, row.depth - 1) * 1.1 + 'rem';
    return shown;
  };
  const columns = figureColumns();
  const table = makeTable([{title: 'module', text: true, value: (row) => order.get(row), show: name}, columns.retained, columns.own, ...columns.rest], rows,
    {search: path, sort: 0, name: 'modules'});
  return leftOut > 0 ? [table, element('p', {class: 'hint'}, `${count(leftOut)} smaller modules have no row.`)] : [table];
}

function groupsTable(rows) {
  const columns = figureColumns();
  return makeTable([{title: 'group', text: true, value: (row) => texts[row.name], show: (row) => texts[row.name]}, columns.live,
    {title: 'of live', value: (row) => row.live, show: (row) => share(row.live, device.moment ? device.moment.live : 0)}, columns.retained, ...columns.rest],
  rows, {search: (row) => texts[row.name], sort: 1, name: 'groups'});
}

function drawLayers() {
  const {modules, groups} = device;
  byId('layers').hidden = !modules && !groups;
  const parts = [];
  if (modules && modules.rows.length > 0) parts.push(...modulesTable(modules));
  else if (modules) parts.push(element('p', {class: 'hint'}, 'No module did anything on this device.'));
  if (groups) parts.push(element('h3', {}, 'Groups'), groupsTable(groups));
  byId('layers-body').replaceChildren(...parts);
}

// Of what was saved for backward, but not by Pleat: nothing, or a title and a table.
function leftAloneParts() {
  const rows = device.left_alone;
  if (rows.length === 0) return [];
  return [element('h3', {}, 'Saved for backward and left alone'), makeTable([
    {title: 'why', text: true, wrap: true, value: (row) => texts[row.why], show: (row) => texts[row.why]},
    {title: 'line', text: true, value: (row) => shortLine(texts[row.line]), show: lineColumn},
    {title: 'tensors', value: (row) => row.tensors, show: (row) => count(row.tensors)},
    {title: 'size', value: (row) => row.bytes, show: (row) => size(row.bytes)},
  ], rows, {search: (row) => texts[row.why] + ' ' + texts[row.line], sort: 3, name: 'what was left alone'})];
}
