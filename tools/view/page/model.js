// The data of the page as objects: one Step a program, one StepGraph a graph. Nothing here touches the document.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const text = (i) => data.strings[i];

class StepGraph {
  constructor(columns) {
    Object.assign(this, columns);
    this.count = this.label.length;
    this.userBegin = null;
    this.edit = new Map();
    for (const edit of columns.changes?.edits ?? []) this.edit.set(edit[0], edit);
  }

  // Positions of the nodes that use node n, or for n < 0 input -1 - n; ascending, each once.
  users(n) {
    if (!this.userBegin) this.indexUsers();
    const key = n + this.inputs.length;
    return [...new Set(this.userList.subarray(this.userBegin[key], this.userBegin[key + 1]))];
  }

  indexUsers() {
    const shift = this.inputs.length;
    const begin = new Int32Array(shift + this.count + 1);
    for (const maker of this.args) begin[maker + shift + 1]++;
    for (let i = 1; i < begin.length; i++) begin[i] += begin[i - 1];
    const fill = begin.slice(), list = new Int32Array(this.args.length);
    for (let n = 0; n < this.count; n++)
      for (let e = this.arg_begin[n]; e < this.arg_begin[n + 1]; e++) list[fill[this.args[e] + shift]++] = n;
    this.userBegin = begin;
    this.userList = list;
  }

  makers(n) { return [...new Set(this.args.slice(this.arg_begin[n], this.arg_begin[n + 1]))]; }
  nameOf(n) { return n < 0 ? this.inputs[-1 - n].split(' ')[1] : '%' + this.label[n]; }
  state(n) { return this.changes ? ['', 'added', 'changed'][this.changes.state[n]] : ''; }
  bodyOf(n) { return this.bodies.filter(([at]) => at === n).map(([, body]) => body); }
}

class Step {
  constructor(program) {
    this.ranks = program.ranks;
    this.memory = program.memory;
    this.time = program.time ?? null;
    this.before = program.before ?? null;
    this.graphs = program.graphs.map((columns) => new StepGraph(columns));
    if (this.time) this.indexTimes();
  }

  // Of each graph, by node: the first event and how long all its events take; of a body, those of all its calls.
  indexTimes() {
    const time = this.time;
    for (const graph of this.graphs) {
      graph.event = new Int32Array(graph.count).fill(-1);
      graph.spent = new Float64Array(graph.count);
    }
    for (let e = 0; e < time.node.length; e++) {
      const graph = this.graphs[time.graph[e]], n = time.node[e];
      if (graph.event[n] < 0) graph.event[n] = e;
      graph.spent[n] += time.end[e] - time.begin[e];
    }
    // When a node of the main graph is under way, for the memory curve: at its own end, else at that of the one before.
    const main = this.graphs[0];
    this.clock = new Float64Array(main.count);
    for (let n = 0, now = 0; n < main.count; n++) {
      const e = main.event[n];
      if (e >= 0) now = Math.max(now, time.end[e]);
      this.clock[n] = now;
    }
  }

  // What is live while node n of the main graph runs: [maker, bytes, first, last, in place], largest first.
  liveAt(n) {
    const m = this.memory, out = [];
    for (let i = 0; i < m.owner.length; i++)
      if (m.first[i] <= n && n <= m.last[i]) out.push([m.owner[i], m.bytes[i], m.first[i], m.last[i], m.in_place[i]]);
    return out.sort((a, b) => b[1] - a[1]);
  }
}

const steps = data.programs.map((program) => new Step(program));

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let u = 0;
  for (; n >= 1024 && u + 1 < units.length; u++) n /= 1024;
  return (u === 0 ? n : n.toPrecision(3)) + ' ' + units[u];
}

function duration(us) {
  if (us >= 1e6) return (us / 1e6).toFixed(2) + ' s';
  return us >= 1e3 ? (us / 1e3).toFixed(2) + ' ms' : us.toFixed(1) + ' us';
}
