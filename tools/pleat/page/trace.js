// The page of a trace: its head, the moment, and the order in which all is drawn.
function momentWord() {
  const moment = device.moment;
  if (!moment) return 'then';
  return moment.live === device.peak_live.bytes && moment.time === device.peak_live.time ? 'at the peak' : `at ${seconds(moment.time)}`;
}

// Options are a JSON object, or whatever the file says.
function optionFacts(text) {
  try {
    const options = JSON.parse(text);
    if (options !== null && typeof options === 'object') return Object.entries(options).map(([name, value]) => [name, String(value)]);
  } catch { /* shown as it is */ }
  return [['options', text]];
}

function drawHead() {
  const process = data.process;
  byId('title').textContent = data.file;
  const when = process.start_wall_ms > 0 ? new Date(process.start_wall_ms).toISOString().slice(0, 19).replace('T', ' ') + ' UTC' : null;
  const rank = process.rank === null ? null : process.world_size === null ? String(process.rank) : `${process.rank} of ${process.world_size}`;
  const facts = [['process', process.pid ? process.pid + (process.host ? ` on ${process.host}` : '') : null], ['rank', rank], ['torch', process.torch],
    ['Pleat', process.pleat], ['began', when], ['length', seconds(data.length)], ['events', count(data.events)],
    ['steps', count(data.step_count)], ['stacks', process.stacks]];
  const pairs = (list) => list.filter((fact) => fact[1] !== null && fact[1] !== undefined).map(([name, value]) =>
    element('div', {}, element('dt', {}, name), element('dd', {}, value)));
  byId('facts').replaceChildren(...pairs(facts));
  const more = pairs([['command', process.command], ...optionFacts(process.options)]);
  byId('options').hidden = more.length === 0;
  byId('option-facts').replaceChildren(...more);
  const notices = [];
  if (data.incomplete) notices.push('The trace was not ended: the program was killed, or it still runs. The last half second may be missing.');
  if (data.lost > 0) notices.push(`${count(data.lost)} events were lost: sums are off by what they did.`);
  if (data.damaged > 0) notices.push(`${count(data.damaged)} parts of the file were damaged and passed over.`);
  if (data.disagreements > 0) notices.push(`${count(data.disagreements)} events contradict those before them.`);
  if (data.no_what_if) notices.push(`${data.no_what_if}.`);
  if (data.filtered) notices.push(`Filtered: ${data.filtered}.`);
  if (!hasCharts) notices.push('charts are left out: plotly.min.js was not there');
  byId('notices').replaceChildren(...notices.map((text) => element('p', {class: 'notice'}, text)));
}

// What the peak would be with saved tensors of other bits.
function whatIfCards(peakWords) {
  const peak = device.what_if;
  if (!peak) return [];
  const part = share(peak.bytes, device.peak_live.bytes);
  return [[`Peak, ${data.what_if}`, size(peak.bytes), [part && `would be ${part} of that`, peakWords(peak)].filter(Boolean).join('; ')]];
}

function drawCards() {
  const peakWords = (peak) => peak.bytes === 0 ? '' : `at ${seconds(peak.time)}` + (peak.step === null ? '' : `, step ${peak.step}`) + `, ${peak.phase}`;
  const all = device.compression.all;
  const cards = [['Peak of live memory', size(device.peak_live.bytes), peakWords(device.peak_live)],
    ...whatIfCards(peakWords), ['Reserved, at most', size(device.peak_reserved.bytes), peakWords(device.peak_reserved)]];
  if (device.device === 'host') cards.push(['Resident, at most', size(data.resident_peak), 'of the process, as sampled']);
  cards.push(['Saved for backward', size(all.saved), `${count(all.saves)} tensors over the run`]);
  if (all.encoded > 0)
    cards.push(['Compressed', ratio(all.source, all.to), `${size(all.source)} to ${size(all.to)}`]);
  if (device.out_of_memory > 0) cards.push(['Out of memory', count(device.out_of_memory), 'requests found no memory']);
  byId('cards').replaceChildren(...cards.map(([name, value, more]) => element('div', {class: 'card'},
    element('div', {class: 'name'}, name), element('div', {class: 'value'}, value), element('div', {class: 'more'}, more))));
}

function drawMoment() {
  const moment = device.moment;
  const title = byId('moment-title');
  if (!moment) {
    title.textContent = 'The trace has no such moment.';
    byId('moment-bar').replaceChildren();
    byId('moment-table').replaceChildren();
    return;
  }
  title.textContent = `${size(moment.live)} live ${momentWord()}` + (moment.step === null ? '' : `, step ${moment.step}`) + `, ${moment.phase}`;
  byId('moment-bar').replaceChildren(...stackBar(moment.classes, Math.max(1, moment.live)).children);
  const rows = STACK_ORDER.filter((one) => moment.classes[one.index] !== 0).map((one) =>
    [element('dt', {}, swatch(one), one.name), size(moment.classes[one.index]), share(moment.classes[one.index], moment.live)]);
  const beside = [['slack', moment.slack], ['cached', moment.cached]];
  if (device.device === 'host') beside.push(['small tensors', moment.small]);
  for (const [name, bytes] of beside) rows.push([element('dt', {}, '+ ' + name), size(bytes), '']);
  byId('moment-table').replaceChildren(...rows.map(([name, bytes, part]) =>
    element('div', {}, name, element('dd', {}, bytes), element('dd', {}, part))));
}

async function drawAll() {
  drawCards();
  drawMoment();
  drawPlaces();
  drawLayers();
  setUpFlame();
  drawFlame();
  drawCompression();
  drawMap();
  drawGrowthTable();
  await drawTimeChart();
  await drawGrowthChart();
  document.documentElement.dataset.drawn = device.device;  // for tests and printers
}

async function redrawColours() {
  drawFlame();
  await drawTimeChart();
  await drawGrowthChart();
}

function setUpDevices() {
  if (data.devices.length < 2) return;
  byId('device-choice').hidden = false;
  const choice = byId('device');
  choice.replaceChildren(...data.devices.map((one, index) => element('option', {value: index}, one.device)));
  choice.addEventListener('change', () => { device = data.devices[Number(choice.value)]; drawAll(); });
}

setUpThemes(redrawColours);
setUpNavigation((section) => section.id !== 'layers' || data.devices.some((any) => any.modules || any.groups));
setUpDevices();
drawHead();
if (device) {
  setUpTabs();
  listenToFlame();
  listenToMap();
  listenToTimeChart();
  drawAll();
  let waiting = 0;
  addEventListener('resize', () => { clearTimeout(waiting); waiting = setTimeout(drawFlame, 120); });
} else {
  byId('notices').append(element('p', {class: 'notice'}, 'The trace has no memory event.'));
  document.querySelectorAll('main section + section').forEach((one) => { one.hidden = true; });
}
