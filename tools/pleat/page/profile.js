// The page of a profile: facts, and sections of charts and tables.

// {columns: {title, text}, rows of cells: [text, value]}. Names are shown as they are, not as cut for a terminal.
function drawTable(table, name) {
  const columns = table.columns.map(({title, text}, at) => {
    const word = (row) => typeof row[at][1] === 'string' ? row[at][1] : row[at][0];
    const value = (row) => typeof row[at][1] === 'number' ? row[at][1] : -Infinity;
    return {title, text, value: text ? word : value, show: text ? word : (row) => row[at][0]};
  });
  return makeTable(columns, table.rows, {search: (row) => row.flat().join(' '), sort: -1, name});
}

function drawSection({title, chart, table}, index) {
  const parts = [chart && lineChart(chart), table && drawTable(table, title)];
  return element('section', {id: 'part-' + index, 'data-name': title}, element('h2', {}, title), ...parts);
}

byId('title').textContent = 'Profile ' + data.file;
byId('facts').replaceChildren(...data.facts.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));
byId('notices').replaceChildren(...data.notices.map((text) => element('p', {class: 'notice'}, text)));
byId('sections').replaceChildren(...data.sections.map(drawSection));
setUpThemes(() => {});
setUpNavigation(() => true);
document.documentElement.dataset.drawn = 'profile';  // for tests and printers
