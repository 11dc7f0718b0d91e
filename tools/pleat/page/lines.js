// Charts of lines and dots, drawn without plotly.
const CHART = {width: 880, height: 320, left: 70, right: 865, top: 34, bottom: 272};

// 1, 2 or 5 times a power of ten, so that there are at most ten ticks.
function tickStep(range) {
  const power = 10 ** (Math.floor(Math.log10(range)) - 1);
  return [1, 2, 5].map((times) => times * power).find((step) => range / step <= 10) ?? 10 * power;
}
// From zero to the largest of the values.
function linearAxis(values) {
  const most = Math.max(0, ...values) || 1;
  const step = tickStep(most);
  const steps = Math.ceil(most / step - 1e-9);
  const ticks = Array.from({length: steps + 1}, (_, i) => [i * step, String(Number((i * step).toPrecision(6)))]);
  return {low: 0, high: steps * step, ticks};
}
// Whole decades around the positive values.
function decadesAxis(values) {
  const positive = values.filter((value) => value > 0);
  if (positive.length === 0) positive.push(1);
  const low = Math.floor(Math.log10(Math.min(...positive)));
  const last = Math.max(Math.ceil(Math.log10(Math.max(...positive))), low + 1);
  const first = Math.max(low, last - 12);  // one tiny number must not squeeze all others together
  const ticks = [];
  for (let power = first; power <= last; power += last - first > 6 ? 2 : 1) ticks.push([10 ** power, '1e' + power]);
  return {low: 10 ** first, high: 10 ** last, ticks, logarithmic: true};
}
function placeOn(axis, value, from, to) {
  const scale = axis.logarithmic ? Math.log10 : (same) => same;
  const inside = Math.min(Math.max(value, axis.low), axis.high);
  return from + (to - from) * (scale(inside) - scale(axis.low)) / (scale(axis.high) - scale(axis.low));
}

// chart: {title, x, y, series}; an axis: {title, kind: 'linear' or 'decades'}, or with low, high and ticks of its own; a
// series: {name, style: 'one' or 'two', line, dots, diagonal, points: [x, y or null, note]}.
function lineChart(chart) {
  const values = (at) => chart.series.flatMap((one) => one.points.map((point) => point[at])).filter((value) => value !== null);
  const axisOf = (axis, at) => ({...axis, ...(axis.kind === 'decades' ? decadesAxis(values(at)) : axis.kind === 'linear' ? linearAxis(values(at)) : {})});
  const x = axisOf(chart.x, 0), y = axisOf(chart.y, 1);
  const left = (value) => placeOn(x, value, CHART.left, CHART.right).toFixed(1);
  const top = (value) => placeOn(y, value, CHART.bottom, CHART.top).toFixed(1);
  const picture = svg('svg', {viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: 'img', 'aria-label': chart.title});
  const write = (text, at, anchor) => {
    const made = svg('text', {...at, 'text-anchor': anchor});
    made.textContent = text;
    picture.append(made);
  };
  for (const [value, name] of x.ticks) {
    picture.append(svg('path', {class: 'grid', d: `M${left(value)} ${CHART.top}V${CHART.bottom}`}));
    write(name, {x: left(value), y: CHART.bottom + 18}, 'middle');
  }
  for (const [value, name] of y.ticks) {
    picture.append(svg('path', {class: 'grid', d: `M${CHART.left} ${top(value)}H${CHART.right}`}));
    write(name, {x: CHART.left - 7, y: Number(top(value)) + 4}, 'end');
  }
  write(x.title, {x: (CHART.left + CHART.right) / 2, y: CHART.height - 8}, 'middle');
  write(y.title, {x: 4, y: 16}, 'start');
  let end = CHART.right;  // of the legend, which begins at the right
  for (const one of [...chart.series].reverse()) {
    if (!one.name) continue;
    write(one.name, {x: end, y: 16}, 'end');
    end -= 7 * one.name.length + 8;
    if (one.line) picture.append(svg('path', {class: 'line ' + one.style, d: `M${end} 12h-30`}));
    if (one.dots) picture.append(svg('circle', {class: 'dot ' + one.style, cx: end - 15, cy: 12, r: 3}));
    end -= 46;
  }
  for (const one of chart.series) {
    const points = one.diagonal ? [[x.low, x.low], [x.high, x.high]] : one.points;
    const steps = points.map(([a, b], i) => b === null ? '' : `${i > 0 && points[i - 1][1] !== null ? 'L' : 'M'}${left(a)} ${top(b)}`);
    if (one.line) picture.append(svg('path', {class: 'line ' + one.style, d: steps.join('')}));
    if (!one.dots) continue;
    for (const [a, b, note] of points) {
      if (b === null) continue;
      const dot = svg('circle', {class: 'dot ' + one.style, cx: left(a), cy: top(b), r: 3});
      if (note) withTip(dot, () => note.split('\n'));
      picture.append(dot);
    }
  }
  return element('div', {class: 'wide lines', tabindex: '0', role: 'region', 'aria-label': chart.title}, picture);
}
