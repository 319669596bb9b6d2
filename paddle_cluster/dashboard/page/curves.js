// SPDX-License-Identifier: Apache-2.0
// Curves of one job, drawn by uPlot: costs and metrics by rank, mean cost per pass, and the speed of all trainers.
// The curves of a second job can be added as dashed lines.

import { apart, byId, element, isNumber, short } from "./words.js";

const HEIGHT = 190;
const OUTLIER = 20; // values above so many times the median are cut off,
const FEW = 0.2; // unless more than this share of them is
const COLOURS = 8;
const WHOLE = [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power)); // between ticks

export class Curves {
  constructor() {
    this.plots = {};
    this.drawn = {};
    this.first = { process: "trainer-0", points: [] };
    this.others = [];
    this.beside = []; // curves of the second job, as in `metrics`; its passes have the title "pass"
    this.figures = new Map(); // title of a metric -> the id of its figure
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawAnew());
    addEventListener("resize", () => this.resize());
  }

  // curve: {process, points: [[batches, cost], ...], passes: [[pass, mean cost], ...], speeds: [[time, samples/s], ...]}
  cost(curve) {
    if (!curve) return;
    this.first = { passes: [], ...curve, points: curve.points ?? [] };
    this.costs();
    this.draw("speed", apartFrom(curve.speeds ?? []), true);
  }

  // The costs of other ranks, and the curves that the scripts of all ranks draw or report: [{process, title, points}, ...]
  metrics(curves) {
    this.others = curves ?? [];
    this.costs();
    for (const title of new Set(this.others.map((one) => one.title))) {
      if (title !== "cost") this.byRank(this.figure(title), this.titled(title));
    }
  }

  // Compare with another job: its title, and its curves in the form of `cost` and `metrics`. No arguments: stop comparing.
  compare(job, { curve, curves } = {}) {
    const { process, points = [], passes = [] } = curve ?? {};
    const found = [{ process, title: "cost", points }, { process, title: "pass", points: passes }, ...(curves ?? [])];
    this.beside = found.filter((one) => one.points.length).map((one) => ({ ...one, process: `${one.process} of ${job}` }));
    this.metrics(this.others);
    this.drawAnew();
  }

  titled(title) {
    return [...this.others, ...this.beside].filter((one) => one.title === title);
  }

  costs() {
    const rest = this.titled("cost");
    byId("cost-caption").textContent = rest.length ? "Cost by rank" : `Cost of ${this.first.process}`;
    this.byRank("cost", [this.first, ...rest].filter((one) => one.points.length));
    const { process, passes = [] } = this.first;
    if (passes.length) this.byRank("pass", [{ process, points: passes }, ...this.titled("pass")]);
  }

  byRank(id, found) {
    if (!found.length) return;
    const ranks = found.map((one) => one.process).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const tables = ranks.map((rank) => apartFrom(found.find((one) => one.process === rank).points));
    this.draw(id, tables.length > 1 ? uPlot.join(tables) : tables[0], false, ranks);
  }

  figure(title) {
    if (!this.figures.has(title)) {
      const id = `metric-${this.figures.size}`;
      const figure = element("figure");
      const plot = element("div");
      figure.id = `${id}-figure`;
      plot.id = id;
      figure.hidden = true;
      figure.append(element("figcaption", title), plot);
      byId("curves").append(figure);
      this.figures.set(title, id);
    }
    return this.figures.get(title);
  }

  draw(id, data, isTime, ranks = []) {
    this.drawn[id] = [data, isTime, ranks];
    if (data[0].length < (isTime ? 3 : 2)) return;
    const figure = byId(`${id}-figure`);
    byId("curves").hidden = figure.hidden = false;
    const [top, most] = isTime ? [] : topOf(data);
    figure.querySelector("figcaption").dataset.cut = top < most ? `cut off at ${short(top)}; maximum ${short(most)}` : "";
    const names = ranks.length > 1 ? ranks : [];
    if (this.plots[id]?.series.length === data.length) this.plots[id].setData(data);
    else {
      this.plots[id]?.destroy();
      this.plots[id] = new uPlot(options(byId(id).clientWidth, isTime, LABELS[id] ?? ["step", "value"], names), data, byId(id));
    }
    this.resize();
  }

  drawAnew() {
    for (const plot of Object.values(this.plots)) plot.destroy();
    this.plots = {};
    for (const [id, drawn] of Object.entries(this.drawn)) this.draw(id, ...drawn);
  }

  resize() {
    for (const [id, plot] of Object.entries(this.plots)) {
      const width = byId(id).clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  }
}

const apartFrom = (points) => [points.map(([at]) => at), points.map(([, value]) => value)];
const LABELS = { cost: ["step", "cost"], pass: ["pass", "mean cost"], speed: ["time", "samples/s"] };

// The top of the y axis and the largest value: a few outliers would make the rest of a curve flat.
function topOf([, ...series]) {
  const values = series.flat().filter(isNumber).sort((a, b) => a - b);
  const most = values.at(-1);
  const limit = OUTLIER * values[Math.floor((values.length - 1) / 2)];
  const kept = values.filter((value) => value <= limit);
  return [limit > 0 && kept.length >= (1 - FEW) * values.length ? kept.at(-1) : most, most];
}

function rangeOf(plot, least, most) {
  const [top] = topOf(plot.data);
  return top < most ? [least - (top - least) * 0.1, top + (top - least) * 0.1] : uPlot.rangeNum(least ?? 0, most ?? 1, 0.1, true);
}

const clock = (at) => new Date(at * 1000).toTimeString().slice(0, 8);

function options(width, isTime, [across, up], ranks) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const place = isTime ? clock : (at) => at.toLocaleString("en");
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  return {
    width: Math.max(200, width),
    height: HEIGHT,
    // the axis of speeds starts at 0; otherwise, noise would look like a change
    scales: { x: { time: isTime }, y: isTime ? { range: (_, least, most) => [0, (most || 1) * 1.1] } : { range: rangeOf } },
    cursor: { y: false },
    series: [
      { label: across, value: (plot, at) => place(at ?? plot.data[0].at(-1)) },
      ...(ranks.length ? ranks : [up]).map((label, at) => ({
        label,
        value: (plot, value) => short(value ?? plot.data[at + 1].findLast(isNumber)),
        stroke: colour(`--curve-${at % COLOURS}`),
        width: 1.6,
        dash: label.includes(" of ") ? [6, 4] : [],
        spanGaps: true,
        points: { size: 5, ...(across === "pass" ? {} : { show: false }) },
      })),
    ],
    axes: [
      { ...axis, size: 32, space: 70, ...(isTime ? {} : { incrs: WHOLE }), values: (_, ticks) => ticks.map(place) },
      { ...axis, size: 58, values: (_, ticks) => apart(ticks) },
    ],
  };
}
