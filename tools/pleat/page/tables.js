// Tables that can be sorted and searched.
const FIRST_ROWS = 25;

// columns: {title, value(row) to sort by, show(row): text or element, text: true for words}
// options: {search: row -> text, sort: number of the first column to sort by, -1: as they are, last: rows that stay last}
function makeTable(columns, rows, options) {
  const state = {sort: options.sort ?? 0, all: false, words: ''};
  state.down = !columns[state.sort]?.text;
  const body = element('tbody');
  const heads = columns.map((column, index) => {
    const button = element('button', {type: 'button'}, column.title);
    button.addEventListener('click', () => {
      state.down = state.sort === index ? !state.down : !column.text;
      state.sort = index;
      fillRows();
    });
    return element('th', {scope: 'col', class: column.text ? 'left' : null}, button);
  });
  const more = element('button', {type: 'button', class: 'more-rows'});
  more.addEventListener('click', () => { state.all = true; fillRows(); });
  const told = element('span', {role: 'status'});

  function chosen() {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => {
      if (words.length === 0) return true;
      const text = options.search(row).toLowerCase();
      return words.every((word) => text.includes(word));
    });
    if (state.sort < 0) return found;
    const value = columns[state.sort].value;
    const sign = state.down ? -1 : 1;
    return found.map((row, index) => [row, value(row), index]).sort((a, b) => {
      if (Boolean(a[0].rest) !== Boolean(b[0].rest)) return a[0].rest ? 1 : -1;
      const order = typeof a[1] === 'string' ? a[1].localeCompare(b[1]) : a[1] - b[1];
      return sign * order || a[2] - b[2];
    }).map((one) => one[0]);
  }
  function fillRows() {
    const found = chosen();
    const shown = state.all ? found : found.slice(0, FIRST_ROWS);
    body.replaceChildren(...shown.map((row) => element('tr', {}, ...columns.map((column) =>
      cellOf(column, row)))));
    heads.forEach((head, index) => {
      if (index === state.sort) head.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    more.hidden = shown.length === found.length;
    more.textContent = `Show all ${count(found.length)} rows`;
    told.textContent = state.words ? `${count(found.length)} of ${count(rows.length)} rows` : '';
  }
  fillRows();
  const table = element('div', {class: 'wide', tabindex: '0', role: 'region', 'aria-label': options.name},
    element('table', {}, element('thead', {}, element('tr', {}, ...heads)), body));
  if (!options.search || rows.length < 8) return element('div', {}, table, more);
  const field = element('input', {type: 'search', placeholder: 'Search', 'aria-label': `Search in ${options.name}`});
  field.addEventListener('input', () => { state.words = field.value; state.all = false; fillRows(); });
  return element('div', {}, element('div', {class: 'tools'}, field, told), table, more);
}

function cellOf(column, row) {
  const shown = column.show(row);
  if (!column.text) return element('td', {}, shown);
  return element('td', {class: column.wrap ? 'text wrap' : 'text'}, typeof shown === 'string' ? element('span', {title: shown}, shown) : shown);
}

// A table of a few rows that stand as they are.
function plainTable(titles, rows, isText) {
  return element('div', {class: 'wide narrow'}, element('table', {},
    element('thead', {}, element('tr', {}, ...titles.map((title, index) =>
      element('th', {scope: 'col', class: isText(index) ? 'left' : null}, title)))),
    element('tbody', {}, ...rows.map((row) => element('tr', {}, ...row.map((cell, index) =>
      element('td', {class: isText(index) ? 'left' : null}, cell)))))));
}
