// Shared by all pages: data, elements, sizes in words, the floating tip, themes, links to sections.
// Texts come from a file and may be anything: they are put in as textContent, never as markup.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);

const byId = (id) => document.getElementById(id);
// element('td', {class: 'left'}, 'text', otherElement)
function element(tag, attributes, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  made.append(...content.filter((one) => one !== null && one !== undefined));
  return made;
}
function svg(tag, attributes) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  return made;
}

// ---- words ----
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
function size(bytes) {
  if (bytes === null || bytes === undefined) return '-';
  let value = bytes, unit = 0;
  while (Math.abs(value) >= (unit === 0 ? 1024 : 1023.995) && unit + 1 < UNITS.length) { value /= 1024; ++unit; }
  return (unit === 0 ? String(bytes) : value.toFixed(2)) + ' ' + UNITS[unit];
}
const count = (number) => number.toLocaleString('en');
const share = (part, all) => all > 0 ? (100 * part / all).toFixed(1) + ' %' : '';
const seconds = (us) => (us / 1e6).toFixed(3) + ' s';
const ratio = (from, to) => to > 0 ? (from / to).toFixed(2) + 'x' : '-';

// ---- the tip ----
const tip = byId('tip');
function showTip(lines, x, y) {
  tip.replaceChildren(element('b', {}, lines[0]), lines.slice(1).filter(Boolean).join('\n'));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? Math.max(4, x - box.width - 10) : x + 14;
  const top = y + 16 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 16;
  tip.style.left = left + 'px';
  tip.style.top = top + 'px';
}
function hideTip() { tip.hidden = true; }
function withTip(target, lines) {
  target.addEventListener('mousemove', (event) => showTip(lines(), event.clientX, event.clientY));
  target.addEventListener('mouseleave', hideTip);
}
// Tips of many shapes by one listener: lines(target) is null where there is none.
function withTips(root, lines) {
  root.addEventListener('mousemove', (event) => {
    const said = lines(event.target);
    if (said) showTip(said, event.clientX, event.clientY); else hideTip();
  });
  root.addEventListener('mouseleave', hideTip);
}
addEventListener('scroll', hideTip, {passive: true});

// ---- themes ----
const systemDark = matchMedia('(prefers-color-scheme: dark)');
let theme = 'auto';
async function applyTheme(shown) {
  document.documentElement.dataset.theme = shown ?? (theme === 'auto' ? (systemDark.matches ? 'dark' : 'light') : theme);
  byId('theme').textContent = `Theme: ${theme}`;
}
function setUpThemes(redrawColours) {
  byId('theme').addEventListener('click', () => {
    theme = {auto: 'light', light: 'dark', dark: 'auto'}[theme];
    applyTheme();
    redrawColours();
  });
  systemDark.addEventListener('change', () => { applyTheme(); redrawColours(); });
  addEventListener('beforeprint', () => { applyTheme('light'); redrawColours(); });
  addEventListener('afterprint', () => { applyTheme(); redrawColours(); });
  applyTheme();
}

// A link to each section that has a name and that `isShown`.
function setUpNavigation(isShown) {
  const named = [...document.querySelectorAll('main section[data-name]')].filter(isShown);
  byId('nav').replaceChildren(...named.map((one) => element('a', {href: '#' + one.id}, one.dataset.name)));
}
