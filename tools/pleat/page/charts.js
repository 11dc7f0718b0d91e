// Charts over time and over steps, by plotly where the page has it.
const MOST_STEP_LINES = 150;
const hasCharts = typeof Plotly !== 'undefined';

// A unit for all numbers of an axis.
function axisUnit(most) {
  let unit = 0;
  while (most >= 1024 && unit + 1 < UNITS.length) { most /= 1024; ++unit; }
  return {name: UNITS[unit], bytes: 1024 ** unit};
}
function baseLayout(height) {
  const ink = colour('--ink'), edge = colour('--edge');
  const axis = {gridcolor: edge, zerolinecolor: edge, linecolor: edge, tickcolor: edge, automargin: true};
  return {
    height, paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font: {color: ink, size: 12, family: 'system-ui, sans-serif'},
    margin: {l: 56, r: 12, t: 10, b: 40}, hovermode: 'x unified', hoverlabel: {bgcolor: colour('--paper'), bordercolor: edge, font: {color: ink}},
    showlegend: false,
    xaxis: {...axis, showspikes: true, spikemode: 'across', spikethickness: 1, spikecolor: colour('--soft'), spikedash: 'solid'},
    yaxis: {...axis, rangemode: 'tozero', fixedrange: true},
  };
}
const CHART_CONFIG = {displaylogo: false, responsive: true, displayModeBar: false, doubleClick: 'reset'};

function noChart(where) {
  where.classList.add('none');
  where.replaceChildren('charts are left out: plotly.min.js was not there');
}

// The times at which a step begins, of those between `from` and `until`; none if there are too many to tell apart.
function stepLines(from, until) {
  const inside = data.steps.filter((step) => step[1] / 1e6 >= from && step[1] / 1e6 <= until);
  return inside.length > MOST_STEP_LINES ? [] : inside;
}
function stepShapes(from, until) {
  return stepLines(from, until).map((step) => ({type: 'line', xref: 'x', yref: 'paper', x0: step[1] / 1e6, x1: step[1] / 1e6, y0: 0, y1: 1,
    line: {color: colour('--soft'), width: 0.7, dash: 'dot'}, layer: 'above'}));
}
function stepNotes(from, until) {
  const lines = stepLines(from, until);
  // A label needs a twentieth of the width; the first one says what they are.
  const shown = [];
  for (const step of lines)
    if (shown.length === 0 || step[1] - shown.at(-1)[1] >= (until - from) * 1e6 * (shown.length === 1 ? 0.07 : 0.045)) shown.push(step);
  const roomy = lines.length < 2 || lines[1][1] - lines[0][1] >= (until - from) * 1e6 * 0.06;
  return shown.map((step) => ({x: step[1] / 1e6, xref: 'x', y: 1, yref: 'paper',
    text: step === shown[0] && roomy ? `step ${step[0]}` : String(step[0]), showarrow: false, xanchor: 'left', yanchor: 'top', font: {size: 10, color: colour('--soft')}, xshift: 2}));
}

// Each phase as one shape of many rectangles, on an axis of its own below the curves.
function phaseTraces() {
  const traces = [];
  data.phase_names.forEach((name, phase) => {
    const x = [], y = [];
    for (const [begin, end, of] of data.phases) {
      if (of !== phase) continue;
      const [a, b] = [begin / 1e6, end / 1e6];
      x.push(a, a, b, b, a, null);
      y.push(0, 1, 1, 0, 0, null);
    }
    if (x.length === 0) return;
    traces.push({x, y, yaxis: 'y2', type: 'scatter', mode: 'lines', fill: 'toself', line: {width: 0}, name, legendgroup: 'phases',
      fillcolor: colour(phaseVariable(name)), hoverinfo: 'skip', showlegend: false});
  });
  return traces;
}

// A button for each curve: plotly's own legend has no keyboard, and no room on a narrow page.
function drawTimeKeys() {
  const where = byId('time-chart');
  const keys = [];
  where.data.forEach((trace, index) => {
    if (trace.yaxis === 'y2' || trace.name === 'live') return;
    const one = CLASSES.find((of) => of.name === trace.name);
    const mark = one ? swatch(one) : element('span', {class: 'swatch ' + {reserved: 'line', resident: 'line solid', peak: 'peak', [data.what_if]: 'line what-if'}[trace.name]});
    const key = element('button', {type: 'button', 'aria-pressed': String(trace.visible !== false)}, mark, trace.name);
    key.addEventListener('click', async () => {
      const visible = key.getAttribute('aria-pressed') !== 'true';
      key.setAttribute('aria-pressed', String(visible));
      await Plotly.restyle(where, {visible}, [index]);
    });
    keys.push(key);
  });
  byId('time-keys').replaceChildren(...keys);
}

function phaseVariable(name) { return '--p-' + name.split(' ')[0]; }
function drawPhaseLegend() {
  const present = new Set(data.phases.map((band) => band[2]));
  byId('phase-legend').replaceChildren(...data.phase_names.filter((name, phase) => present.has(phase)).map((name) =>
    element('span', {}, element('span', {class: 'swatch', style: `background:var(${phaseVariable(name)})`}), name)));
  if (present.size > 0) byId('phase-legend').prepend(element('span', {}, 'Phases below the curves:'));
}

function phaseAt(time) {
  const found = data.phases.find(([begin, end]) => time >= begin && time < end);
  return found ? data.phase_names[found[2]] : '';
}
function stepAt(time) {
  let low = 0, high = data.steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.steps[middle][1] <= time) low = middle + 1; else high = middle;
  }
  return low === 0 ? '' : `step ${data.steps[low - 1][0]}`;
}

function timeTraces(unit) {
  const curve = device.curve;
  const x = curve.time.map((us) => us / 1e6);
  const traces = [];
  // All the text of a hover stands in one curve: eleven of them would hide what they tell of.
  for (const one of STACK_ORDER) {
    const column = curve.classes[one.index];
    if (!column) continue;
    traces.push({x, y: column.map((bytes) => bytes / unit.bytes), customdata: column.map(size), name: one.name, type: 'scatter', mode: 'lines', stackgroup: 'live',
      line: {width: 0, shape: 'hv'}, fillcolor: colour(one.variable), hovertemplate: '%{customdata}'});
  }
  const where = curve.time.map((us) => [stepAt(us), phaseAt(us)].filter(Boolean).join(', '));
  traces.push({x, y: curve.live.map((bytes) => bytes / unit.bytes), customdata: curve.live.map((bytes, i) => size(bytes) + (where[i] ? `  (${where[i]})` : '')),
    name: 'live', type: 'scatter', mode: 'lines', opacity: 0.45, line: {width: 0.8, shape: 'hv', color: colour('--ink')}, hovertemplate: '%{customdata}', showlegend: false});
  const most = Math.max(...curve.reserved, 1);
  traces.push({x, y: curve.reserved.map((bytes) => bytes / unit.bytes), customdata: curve.reserved.map(size), name: 'reserved', type: 'scatter', mode: 'lines',
    line: {width: 1.4, shape: 'hv', color: colour('--reserved'), dash: 'dash'}, hovertemplate: '%{customdata}'});
  if (data.resident.length > 0 && device.device === 'host') {
    // A process of 10 GiB would press a model of 1 GiB flat.
    const apart = Math.max(...data.resident.map((point) => point[1])) > 2 * most;
    traces.push({x: data.resident.map((point) => point[0] / 1e6), y: data.resident.map((point) => point[1] / unit.bytes),
      customdata: data.resident.map((point) => size(point[1])), name: 'resident', type: 'scatter', mode: 'lines',
      line: {width: 1.4, shape: 'hv', color: colour('--resident')}, hovertemplate: '%{customdata}', visible: !apart});
  }
  if (curve.what_if)
    traces.push({x, y: curve.what_if.map((bytes) => bytes / unit.bytes), customdata: curve.what_if.map(size), name: data.what_if, type: 'scatter', mode: 'lines',
      line: {width: 2, shape: 'hv', color: colour('--accent'), dash: 'dash'}, hovertemplate: '%{customdata}'});
  const peak = device.peak_live;
  if (peak.bytes > 0)
    traces.push({x: [peak.time / 1e6], y: [peak.bytes / unit.bytes], name: 'peak', type: 'scatter', mode: 'markers', hovertemplate: size(peak.bytes),
      marker: {size: 10, symbol: 'diamond', color: colour('--mark'), line: {color: colour('--paper'), width: 2}}});
  return traces;
}

async function drawTimeChart() {
  const where = byId('time-chart');
  if (!hasCharts) return noChart(where);
  const whole = [0, Math.max(data.length / 1e6, 1e-6)];
  const unit = axisUnit(Math.max(device.peak_reserved.bytes, device.peak_live.bytes));
  const layout = baseLayout(where.clientHeight);
  const phases = phaseTraces();
  Object.assign(layout.xaxis, {title: {text: 'seconds', standoff: 4}, range: whole, hoverformat: '.3f', unifiedhovertitle: {text: '%{x} s'}, anchor: phases.length ? 'y2' : 'y'});
  Object.assign(layout.yaxis, {title: {text: unit.name}, domain: [phases.length ? 0.07 : 0, 1]});
  layout.yaxis2 = {domain: [0, 0.045], visible: false, fixedrange: true, range: [0, 1]};
  layout.shapes = stepShapes(...whole);
  layout.annotations = stepNotes(...whole);
  await Plotly.react(where, [...timeTraces(unit), ...phases], layout, CHART_CONFIG);
  drawTimeKeys();
  drawPhaseLegend();
  where.removeAllListeners?.('plotly_relayout');
  where.on('plotly_relayout', (change) => {
    if (!('xaxis.range[0]' in change || 'xaxis.range' in change || 'xaxis.autorange' in change)) return;
    const range = where.layout.xaxis.range;
    Plotly.relayout(where, {shapes: stepShapes(...range), annotations: stepNotes(...range)});
  });
}

function listenToTimeChart() {
  const where = byId('time-chart');
  if (!hasCharts) return;
  where.addEventListener('keydown', (event) => {
    const [a, b] = where.layout.xaxis.range;
    const end = Math.max(data.length / 1e6, 1e-6);
    const middle = (a + b) / 2, half = (b - a) / 2;
    const to = {ArrowLeft: [a - half / 4, b - half / 4], ArrowRight: [a + half / 4, b + half / 4],
      '+': [middle - half / 2, middle + half / 2], '=': [middle - half / 2, middle + half / 2],
      '-': [Math.max(0, middle - 2 * half), Math.min(end, middle + 2 * half)], '0': [0, end], Escape: [0, end]}[event.key];
    if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (to[0] < 0 || to[1] > end) { const width = Math.min(to[1] - to[0], end); to[0] = Math.max(0, Math.min(to[0], end - width)); to[1] = to[0] + width; }
    Plotly.relayout(where, {'xaxis.range': to});
  });
}

async function drawGrowthChart() {
  const where = byId('growth-chart');
  if (!hasCharts) return noChart(where);
  if (device.steps.length === 0) {
    where.classList.add('none');
    where.replaceChildren('The trace has no steps.');
    return;
  }
  const unit = axisUnit(Math.max(1, ...device.steps.map((step) => step[1])));
  const x = device.steps.map((step) => step[0]);
  const line = (name, at, colourOf, dash) => ({x, y: device.steps.map((step) => step[at] / unit.bytes), name, type: 'scatter', mode: x.length < 60 ? 'lines+markers' : 'lines',
    customdata: device.steps.map((step) => size(step[at])), hovertemplate: '%{customdata}', line: {color: colour(colourOf), width: 1.8, dash}, marker: {size: 5}});
  const layout = baseLayout(where.clientHeight);
  Object.assign(layout.xaxis, {title: {text: 'step', standoff: 4}, ...(x.length < 12 ? {dtick: 1} : {tickformat: ',d'})});
  layout.yaxis.title = {text: unit.name};
  Object.assign(layout, {showlegend: true, legend: {orientation: 'h', x: 0, y: 1.02, yanchor: 'bottom'}});
  layout.margin.t = 30;
  await Plotly.react(where, [line('live at the end of the step', 2, '--accent', 'solid'), line('peak of the step', 1, '--soft', 'dot')], layout, CHART_CONFIG);
}
