// The timeline: lanes of events over time and the memory that is live, on a canvas. The wheel zooms, dragging moves, a
// double click shows all; a click picks the event, or on the memory curve that moment's live set.
'use strict';

const kLane = 22, kAxis = 18;

class Timeline {
  constructor(canvas, tip, onPick, onMoment) {
    Object.assign(this, {canvas, tip, onPick, onMoment, drag: null, picked: -1, module: ''});
    canvas.addEventListener('wheel', (event) => this.zoom(event), {passive: false});
    canvas.addEventListener('mousedown', (event) => {
      this.drag = {x: event.offsetX, begin: this.begin, moved: false};
    });
    window.addEventListener('mouseup', () => { setTimeout(() => { this.drag = null; }); });
    canvas.addEventListener('mousemove', (event) => this.move(event));
    canvas.addEventListener('mouseleave', () => { this.tip.hidden = true; });
    canvas.addEventListener('click', (event) => this.click(event));
    canvas.addEventListener('dblclick', () => this.reset());
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  show(step) {
    this.step = step;
    const time = step.time;
    this.byLane = time ? time.lanes.map(() => []) : [];
    for (let e = 0; time && e < time.node.length; e++) this.byLane[time.lane[e]].push(e);
    this.reset();
  }

  reset() {
    this.begin = 0;
    this.end = this.step.time?.makespan_us || 1;
    this.resize();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = this.width * ratio;
    this.canvas.height = this.height * ratio;
    this.context = this.canvas.getContext('2d');
    this.context.scale(ratio, ratio);
    this.context.font = '11px system-ui, sans-serif';
    const lanes = [...this.step?.time?.lanes ?? [], 'peak 1023 MiB'];
    this.names = Math.min(this.width / 3, 14 + Math.max(...lanes.map((name) => this.context.measureText(name).width)));
    if (this.step) this.draw();
  }

  x(us) { return this.names + (us - this.begin) / (this.end - this.begin) * (this.width - this.names); }
  us(x) { return this.begin + (x - this.names) / (this.width - this.names) * (this.end - this.begin); }
  memoryTop() { return kAxis + this.byLane.length * kLane + 8; }

  draw() {
    const style = getComputedStyle(document.documentElement);
    this.colors = (name) => style.getPropertyValue('--' + name);
    this.context.clearRect(0, 0, this.width, this.height);
    if (!this.step.time) return;
    this.drawAxis();
    this.byLane.forEach((events, lane) => this.drawLane(events, lane));
    this.drawMemory();
  }

  drawAxis() {
    const c = this.context;
    c.fillStyle = this.colors('dim');
    for (let i = 0; i <= 8; i++) {
      const at = this.names + (this.width - this.names) * i / 8;
      c.textAlign = i === 8 ? 'right' : i === 0 ? 'left' : 'center';
      c.fillText(duration(this.us(at)), at, 12);
    }
  }

  colorOf(e) {
    const time = this.step.time, lane = time.lanes[time.lane[e]];
    if (lane.startsWith('group')) return 'communication';
    if (lane !== 'compute') return 'other';
    return data.phases[this.step.graphs[time.graph[e]].phase[time.node[e]]];
  }

  isBright(e) {
    if (this.module === '') return true;
    const time = this.step.time, module = text(this.step.graphs[time.graph[e]].module[time.node[e]]);
    return module === this.module || module.startsWith(this.module + '.');
  }

  // Events of one colour that touch at this zoom are one bar.
  drawLane(events, lane) {
    const c = this.context, time = this.step.time, top = kAxis + lane * kLane;
    c.fillStyle = this.colors('front');
    c.textAlign = 'left';
    c.fillText(time.lanes[lane], 6, top + 14);
    let bar = null;
    const flush = () => {
      if (!bar) return;
      c.globalAlpha = bar.bright ? 1 : 0.18;
      c.fillStyle = this.colors(bar.color);
      c.fillRect(bar.from, top + 1, Math.max(0.6, bar.to - bar.from), kLane - 5);
    };
    for (const e of events) {
      if (time.end[e] < this.begin || time.begin[e] > this.end) continue;
      const from = Math.max(this.names, this.x(time.begin[e])), to = this.x(time.end[e]);
      const color = this.colorOf(e), bright = this.isBright(e);
      if (bar && bar.color === color && bar.bright === bright && from - bar.to < 0.5) {
        bar.to = Math.max(bar.to, to);
        continue;
      }
      flush();
      bar = {from, to, color, bright};
    }
    flush();
    c.globalAlpha = 1;
    if (this.picked >= 0 && time.lane[this.picked] === lane) {
      c.strokeStyle = this.colors('critical');
      c.lineWidth = 2;
      const from = this.x(time.begin[this.picked]);
      c.strokeRect(from - 1, top, Math.max(3, this.x(time.end[this.picked]) - from + 2), kLane - 3);
    }
  }

  drawMemory() {
    const c = this.context, step = this.step, memory = step.memory, top = this.memoryTop(), bottom = this.height - 4;
    if (bottom - top < 20) return;
    const before = step.before, high = Math.max(1, memory.peak_bytes, before?.peak_bytes ?? 0);
    const y = (amount) => bottom - (bottom - top) * amount / high;
    c.save();
    c.beginPath();
    c.rect(this.names, top - 2, this.width - this.names, bottom - top + 4);
    c.clip();
    c.beginPath();
    c.moveTo(this.x(0), bottom);
    for (let n = 0, column = -1, most = 0; n < memory.live.length; n++) {
      most = Math.max(most, memory.live[n]);
      const at = Math.round(this.x(step.clock[n]) * 2);
      if (at === column && n + 1 < memory.live.length) continue;
      c.lineTo(Math.max(this.x(0), column / 2), y(most));
      c.lineTo(at / 2, y(most));
      column = at;
      most = 0;
    }
    c.lineTo(this.x(step.time.makespan_us), bottom);
    c.fillStyle = this.colors('memory');
    c.fill();
    if (before) this.drawBefore(before, y);
    c.restore();
    c.fillStyle = this.colors('front');
    c.textAlign = 'left';
    c.fillText('live memory', 6, top + 12);
    c.fillText('peak ' + bytes(memory.peak_bytes), 6, top + 27);
    if (before) c.fillText('was ' + bytes(before.peak_bytes), 6, top + 42);
    const peak = this.x(step.clock[memory.peak_at]);
    c.fillStyle = this.colors('critical');
    if (peak >= this.names) c.fillRect(peak, top, 1, bottom - top);
  }

  // The older step's memory as a line, over its own time.
  drawBefore(before, y) {
    const c = this.context, us = before.makespan_us / Math.max(1, before.live.length - 1);
    c.beginPath();
    before.live.forEach((amount, i) => c.lineTo(this.x(i * us), y(amount)));
    c.strokeStyle = this.colors('dim');
    c.lineWidth = 1;
    c.stroke();
  }

  zoom(event) {
    event.preventDefault();
    if (!this.step.time) return;
    const around = this.us(event.offsetX), factor = Math.exp(event.deltaY * 0.0015), all = this.step.time.makespan_us;
    const width = Math.min(all, Math.max(0.5, (this.end - this.begin) * factor));
    const begin = around - (around - this.begin) * width / (this.end - this.begin);
    this.begin = Math.min(Math.max(0, begin), all - width);
    this.end = this.begin + width;
    this.draw();
  }

  // The event at a place; -1 = none.
  eventAt(x, y) {
    const lane = Math.floor((y - kAxis) / kLane), time = this.step.time, at = this.us(x);
    const slack = (this.end - this.begin) / this.width;
    let best = -1, distance = slack * 3;
    for (const e of this.byLane[lane] ?? []) {
      const d = Math.max(time.begin[e] - at, at - time.end[e], 0);
      if (d < distance || (d === 0 && best < 0)) best = e, distance = d;
      if (d === 0) break;
    }
    return best;
  }

  // The node of the main graph that is under way at a time: the first whose end is not before it.
  momentAt(us) {
    const clock = this.step.clock;
    let low = 0, high = clock.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (clock[middle] < us) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  move(event) {
    if (!this.step.time) return;
    if (this.drag && event.buttons === 1) return this.pan(event);
    this.tip.hidden = true;
    if (event.offsetX < this.names) return;
    if (event.offsetY >= this.memoryTop()) {
      const n = this.momentAt(this.us(event.offsetX));
      const live = this.step.memory.live;
      if (live.length) this.hint(event, bytes(live[n]) + ' live at ' + this.step.graphs[0].nameOf(n));
      return;
    }
    const e = this.eventAt(event.offsetX, event.offsetY), time = this.step.time;
    if (e < 0) return;
    const graph = this.step.graphs[time.graph[e]], n = time.node[e];
    const words = [graph.nameOf(n), text(graph.op[n]), duration(time.end[e] - time.begin[e]), text(graph.module[n])];
    this.hint(event, words.join('  '));
  }

  pan(event) {
    const width = this.end - this.begin, all = this.step.time.makespan_us;
    const by = (this.drag.x - event.offsetX) / (this.width - this.names) * width;
    if (Math.abs(this.drag.x - event.offsetX) > 3) this.drag.moved = true;
    this.begin = Math.min(Math.max(0, this.drag.begin + by), all - width);
    this.end = this.begin + width;
    this.draw();
  }

  hint(event, words) {
    this.tip.textContent = words;
    this.tip.style.left = Math.min(event.offsetX + 12, this.width - 260) + 'px';
    this.tip.style.top = event.offsetY + 14 + 'px';
    this.tip.hidden = false;
  }

  click(event) {
    if (this.drag?.moved || !this.step.time || event.offsetX < this.names) return;
    if (event.offsetY >= this.memoryTop()) return this.onMoment(this.momentAt(this.us(event.offsetX)));
    const e = this.eventAt(event.offsetX, event.offsetY);
    if (e >= 0) this.onPick(this.step.time.graph[e], this.step.time.node[e]);
  }

  pick(event) {
    this.picked = event;
    const time = this.step.time;
    if (event >= 0 && (time.end[event] < this.begin || time.begin[event] > this.end)) {
      const width = this.end - this.begin;
      this.begin = Math.max(0, time.begin[event] - width / 2);
      this.end = this.begin + width;
    }
    this.draw();
  }

  dim(module) {
    this.module = module;
    this.draw();
  }
}
