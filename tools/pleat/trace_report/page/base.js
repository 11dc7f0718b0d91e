// What all parts of the page share: data, elements, sizes in words, colours, the floating tip.
// Texts come from a trace and may be anything: they are put in as textContent, never as markup.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const texts = data.texts;
let device = data.devices[0];

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
// "/a/b/train.py:12 forward" -> "train.py:12 forward"; "at::add (/a/b/lib.so)" -> "at::add (lib.so)"
function shortLine(text) {
  const native = /^(.* \()\/(?:.*\/)?([^/]*\))$/.exec(text);
  if (native) return native[1] + native[2];
  const colon = text.lastIndexOf(':');
  const slash = text.lastIndexOf('/', colon < 0 ? text.length : colon);
  return text.slice(slash + 1);
}
const lineText = (number) => texts[number] === '' ? '(no line)' : shortLine(texts[number]);
const opText = (number) => texts[number] === '' ? '(no operator)' : texts[number];

// ---- colours ----
const CLASSES = data.classes.map((name, index) => ({name, index, variable: '--c-' + name.replaceAll(' ', '-')}));
// From the bottom of a stack to its top: what stays through a step comes first.
const STACK_ORDER = ['parameters', 'optimizer state', 'gradients', 'inputs', 'payloads', 'saved raw', 'restored', 'kept',
  'temporary', 'unknown'].map((name) => CLASSES.find((one) => one.name === name));
const fill = (one) => `var(${one.variable})`;
const colour = (variable) => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
const swatch = (one) => element('span', {class: 'swatch', style: `background:${fill(one)}`});
// Bytes by class as one bar; `all`: what its whole width stands for.
function stackBar(bytes, all, small) {
  const bar = element('div', {class: small ? 'stack small' : 'stack', 'aria-hidden': 'true'});
  for (const one of STACK_ORDER) {
    if (!(bytes[one.index] > 0)) continue;
    const piece = element('span', {style: `background:${fill(one)};width:${100 * bytes[one.index] / all}%`});
    withTip(piece, () => [one.name, size(bytes[one.index]) + ', ' + share(bytes[one.index], all)]);
    bar.append(piece);
  }
  return bar;
}

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
