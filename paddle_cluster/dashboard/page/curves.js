// SPDX-License-Identifier: Apache-2.0
// Curves of one job, drawn by uPlot: cost of batches, mean cost of passes, speed since the page is open.

import { apart, byId, isNumber, short } from "./words.js";

const HEIGHT = 190;
const SPEEDS = 600;
const WHOLE = [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power)); // between ticks

export class Curves {
  constructor() {
    this.plots = {};
    this.times = [];
    this.speeds = [];
    this.drawn = {};
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawAnew());
    addEventListener("resize", () => this.resize());
  }

  // curve: {process, points: [[batches, cost], ...], passes: [[pass, mean cost], ...]}
  cost(curve) {
    if (!curve) return;
    const { points = [], passes = [] } = curve;
    const caption = byId("cost-caption");
    caption.textContent = `Cost of ${curve.process} by batches`;
    this.draw("cost", [points.map(([at]) => at), points.map(([, cost]) => cost)], false);
    this.draw("pass", [passes.map(([at]) => at), passes.map(([, cost]) => cost)], false);
  }

  speed(rows) {
    const told = rows.filter((row) => row.state === "running" && isNumber(row.samples_per_s));
    if (!told.length || Date.now() / 1000 - (this.times.at(-1) ?? 0) < 0.7) return; // what came with the page comes again
    this.times.push(Date.now() / 1000);
    this.speeds.push(told.reduce((sum, row) => sum + row.samples_per_s, 0));
    if (this.times.length > SPEEDS) {
      this.times.shift();
      this.speeds.shift();
    }
    this.draw("speed", [this.times, this.speeds], true);
  }

  draw(id, data, isTime) {
    this.drawn[id] = [data, isTime];
    if (data[0].length < (isTime ? 3 : 2)) return;
    byId("curves").hidden = byId(`${id}-figure`).hidden = false;
    if (this.plots[id]) this.plots[id].setData(data);
    else this.plots[id] = new uPlot(options(byId(id).clientWidth, isTime, LABELS[id]), data, byId(id));
    this.resize();
  }

  drawAnew() {
    for (const plot of Object.values(this.plots)) plot.destroy();
    this.plots = {};
    for (const [id, [data, isTime]] of Object.entries(this.drawn)) this.draw(id, data, isTime);
  }

  resize() {
    for (const [id, plot] of Object.entries(this.plots)) {
      const width = byId(id).clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  }
}

const LABELS = { cost: ["batches", "cost"], pass: ["pass", "mean cost"], speed: ["time", "samples/s"] };
const clock = (at) => new Date(at * 1000).toTimeString().slice(0, 8);

function options(width, isTime, [across, up]) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const place = isTime ? clock : (at) => at.toLocaleString("en");
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  return {
    width: Math.max(200, width),
    height: HEIGHT,
    // speeds from 0 on: else noise looks like a change
    scales: { x: { time: isTime }, y: isTime ? { range: (_, least, most) => [0, (most || 1) * 1.1] } : {} },
    cursor: { y: false },
    series: [
      { label: across, value: (plot, at) => place(at ?? plot.data[0].at(-1)) },
      { label: up, value: (plot, at) => short(at ?? plot.data[1].at(-1)), stroke: colour("--accent"), width: 1.6, points: { size: 5, ...(across === "pass" ? {} : { show: false }) } },
    ],
    axes: [
      { ...axis, size: 32, space: 70, ...(isTime ? {} : { incrs: WHOLE }), values: (_, ticks) => ticks.map(place) },
      { ...axis, size: 58, values: (_, ticks) => apart(ticks) },
    ],
  };
}
