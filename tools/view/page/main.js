// What belongs together: choices of program, graph, module and node, the search, and the address (#n=mm_3&q=softmax)
// that a colleague can be sent.
'use strict';

const element = (id) => document.getElementById(id);
const go = {
  node: (index, n) => page.pickNode(index, n),
  module: (path) => page.filterModule(path),
  moment: (n) => page.panel.showMoment(page.step, n),
  graph: (index) => page.showGraph(index),
};

class Page {
  constructor() {
    this.panel = new Panel(element('panel'), go);
    this.tree = new Tree(element('tree'), (path) => this.filterModule(path));
    this.list = new List(element('list'), element('space'), (n) => this.pickNode(this.graphIndex, n));
    this.timeline = new Timeline(element('canvas'), element('tip'), (index, n) => this.pickNode(index, n), go.moment);
    this.module = '';
    this.query = '';
    element('name').textContent = (data.name_before ? data.name_before + ' → ' : '') + (data.title || data.name);
    steps.forEach((step, i) => element('program').add(new Option(step.ranks, i)));
    element('program').hidden = steps.length === 1;
    element('program').addEventListener('change', (event) => this.showStep(+event.target.value));
    element('graph').addEventListener('change', (event) => this.showGraph(+event.target.value));
    element('search').addEventListener('input', (event) => this.search(event.target.value));
    element('search').addEventListener('keydown', (event) => {
      if (event.key === 'Enter') this.list.step(event.shiftKey ? -1 : 1);
      if (event.key === 'Escape') this.search(event.target.value = '');
    });
    document.addEventListener('keydown', (event) => {
      if (event.key !== '/' || event.target.tagName === 'INPUT') return;
      event.preventDefault();
      element('search').focus();
    });
  }

  showStep(i) {
    this.stepIndex = i;
    this.step = steps[i];
    element('program').value = i;
    const titles = this.step.graphs.map((graph, g) => g === 0 ? 'the step' : '@' + graph.name);
    element('graph').replaceChildren(...titles.map((title, g) => new Option(title, g)));
    element('graph').hidden = this.step.graphs.length === 1;
    element('summary').textContent = this.summary().join(' · ');
    this.timeline.show(this.step);
    this.showGraph(0);
  }

  summary() {
    const time = this.step.time, memory = this.step.memory, words = [];
    if (time) {
      const exposed = 100 * time.exposed_us / Math.max(time.makespan_us, 1e-9);
      words.push(duration(time.makespan_us) + ' on ' + data.machine, exposed.toFixed(1) + ' % exposed communication');
    }
    words.push(this.step.graphs[0].count + ' nodes', bytes(memory.peak_bytes) + ' live at the peak');
    const before = this.step.before;
    if (before) words.push('was ' + duration(before.makespan_us) + ', ' + before.nodes + ' nodes, ' + bytes(before.peak_bytes));
    if (memory.unknown) words.push(memory.unknown + ' sizes unknown');
    return words;
  }

  showGraph(index) {
    this.graphIndex = index;
    this.graph = this.step.graphs[index];
    element('graph').value = index;
    this.list.picked = -1;
    this.tree.show(this.graph);
    if (this.graph.changes) this.panel.showChanges(this.graph);
    else if (index === 0 && this.graph.count) this.panel.showMoment(this.step, this.step.memory.peak_at);
    else this.panel.clear();
  }

  filterModule(path) {
    this.module = path;
    this.timeline.dim(path);
    this.filter();
  }

  search(query) {
    const begin = performance.now();
    this.query = query;
    element('search').value = query;
    this.filter();
    document.documentElement.dataset.searchMs = (performance.now() - begin).toFixed(1);
    this.remember();
  }

  // Nodes of the module whose line, module or source holds the query, letters of either case.
  filter() {
    const graph = this.graph, pattern = new RegExp(this.query.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'i');
    const below = data.strings.map((s) => this.module === '' || s === this.module || s.startsWith(this.module + '.'));
    const hit = this.query === '' ? null : data.strings.map((s) => pattern.test(s));
    const matches = (n) => hit === null || hit[graph.module[n]] || hit[graph.source[n]] || pattern.test(graph.line[n]);
    const all = this.query === '' && this.module === '';
    const shown = this.list.show(graph, all ? null : (n) => below[graph.module[n]] && matches(n));
    element('found').textContent = all ? '' : shown + ' of ' + graph.count + ' nodes';
  }

  pickNode(index, n) {
    if (index !== this.graphIndex) this.showGraph(index);
    this.list.pick(n);
    this.timeline.pick(this.graph.event?.[n] ?? -1);
    this.panel.showNode(this.step, index, n);
    this.remember();
  }

  remember() {
    const words = new URLSearchParams();
    if (this.stepIndex) words.set('p', this.stepIndex);
    if (this.graphIndex) words.set('g', this.graphIndex);
    if (this.list.picked >= 0) words.set('n', this.graph.label[this.list.picked]);
    if (this.query) words.set('q', this.query);
    history.replaceState(null, '', '#' + words);
  }

  recall() {
    const words = new URLSearchParams(location.hash.slice(1)), p = +(words.get('p') ?? 0), g = +(words.get('g') ?? 0);
    this.showStep(p in steps ? p : 0);
    if (g && g in this.step.graphs) this.showGraph(g);
    if (words.get('q')) this.search(words.get('q'));
    const n = this.graph.label.indexOf(words.get('n'));
    if (n >= 0) this.pickNode(this.graphIndex, n);
  }
}

const page = new Page();
page.recall();
// What a test reads: when the page had drawn itself, in milliseconds from the start.
const drawn = () => { document.documentElement.dataset.paintMs = performance.now().toFixed(1); };
requestAnimationFrame(() => requestAnimationFrame(drawn));
