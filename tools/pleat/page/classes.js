// A trace's names and lines in words, and the colours of its classes of bytes.
const texts = data.texts;
let device = data.devices[0];

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
