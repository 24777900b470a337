#include "librun/rank_session.h"

#include <algorithm>
#include <cstdlib>

#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "librun/check/compare_sizes.h"
#include "librun/check/expect.h"
#include "librun/check/precision.h"
#include "librun/comm/agree.h"
#include "librun/cpu/fill.h"
#include "librun/element.h"
#include "librun/execute/memory.h"
#include "librun/execute/unsupported.h"
#include "librun/values/data_name.h"
#include "librun/values/input_use.h"

namespace sg {
namespace {

std::optional<double> number_in(const Tensor& t) {
  if (t.is_none() || t.elements() != 1 || is_complex(t.dtype)) return std::nullopt;
  double value = 0;
  visit_stored(t.dtype, [&]<class T>() {
    if constexpr (!is_complex_type<T>) value = static_cast<double>(static_cast<Compute<T>>(*t.as<T>()));
  });
  return value;
}

// The loss: the only output of that kind, else a graph's only output.
ValueId loss_of(const Graph& graph) {
  ValueId found;
  size_t losses = 0;
  for (const Output& output : graph.outputs())
    if (output.kind == OutputKind::loss) found = output.value, ++losses;
  if (losses == 0 && graph.outputs().size() == 1) return graph.outputs()[0].value;
  return losses == 1 ? found : ValueId();
}

// Of inputs that each step should be given, and that stay as they are.
std::string kept_text(const Graph& graph, const std::vector<size_t>& kept) {
  const std::string more = kept.size() > 1 ? " and " + std::to_string(kept.size() - 1) + " more" : "";
  return input_title(graph, graph.inputs()[kept[0]]) + more +
         ": the same in all steps, and the captured step sets it each time: --inputs 'rate{step}.safetensors' gives "
         "each step its own";
}

RankOptions rank_options(const SessionOptions& options) {
  RankOptions out = options.rank;
  out.runs_once = options.steps <= 1;
  return out;
}

}  // namespace

RankSession::RankSession(const Job& job, Communicator& comm, const AliasAnalysis& alias, const SessionOptions& options,
                         const InitPlan* init, Profile::Clock::time_point start)
    : job_(job),
      comm_(comm),
      options_(options),
      init_(init),
      run_(std::in_place, job, comm.rank(), rank_options(options), &comm),
      alias_(alias) {
  values_ = {[this](ValueId v) { return run_->tensor(v); }, [this](ValueId v) { return run_->number(v); }};
  report_.rank = comm.rank();
  if (options.profile) observers_.add(&profile_.emplace(job, comm.rank(), start));
}

Status RankSession::add_observers() {
  if (!options_.dump.empty()) observers_.add(&dump_.emplace(options_.dump_names));
  if (!options_.watch.empty()) {  // after the dump, which then contains the result that triggers it
    SG_ASSIGN(const Watch::For what, parse_watch(options_.watch));
    observers_.add(&watch_.emplace(run_->program(), what));
  }
  if (options_.record) observers_.add(&(*options_.record)[comm_.rank()]);
  if (options_.compare_with)
    observers_.add(&comparison_.emplace((*options_.compare_with)[comm_.rank()], run_->graph(),
                                        narrowest_floats(run_->program(), alias_), options_.tolerance));
  if (!observers_.empty()) run_->set_observer(&observers_);
  return ok_status();
}

// Refuses a step captured with its optimizer, which would be updated twice.
Status RankSession::check_not_updated() const {
  const Graph& graph = run_->graph();
  for (NodeId n : graph.nodes()) {
    if (graph.node(n).phase != Phase::optimizer) continue;
    for (StorageId written : alias_.writes(n))
      for (size_t i : optimizer_->inputs()) {
        const Input& parameter = graph.inputs()[i];
        if (alias_.storage(written).alias_class != alias_.storage(alias_.storage_of(parameter.value)).alias_class)
          continue;
        return Error{ErrorKind::usage,
                     "--optimizer: the step updates " + input_title(graph, parameter) + " itself, at " +
                         place_of(run_->program(), graph, n),
                     {},
                     "leave --optimizer out: the step was captured with its own"};
      }
  }
  return ok_status();
}

Status RankSession::make_optimizer() {
  SG_ASSIGN(optimizer_, Optimizer::make(run_->graph(), *options_.optimizer));
  SG_TRY(check_not_updated());
  if (options_.rank.numerics == Numerics::f64)
    recorded_optimizer_ = Optimizer::make(run_->graph(), *options_.optimizer).value();
  if (options_.state.empty()) return ok_status();
  const std::string name = data_file_name(options_.state, comm_.rank(), 0);
  for (std::optional<Optimizer>* optimizer : {&optimizer_, &recorded_optimizer_}) {
    if (!*optimizer) continue;
    SG_ASSIGN(LeftState left, LeftState::open(name));
    const bool goes_on = (*optimizer)->go_on_from(std::move(left));
    if (!goes_on && options_.say && speaks() && optimizer == &optimizer_)
      options_.say(name + " has nothing that this optimizer keeps: it begins anew");
  }
  return ok_status();
}

Status RankSession::prepare() {
  SG_TRY(add_observers());
  if (options_.optimizer) SG_TRY(make_optimizer());
  SG_TRY(take_inputs());
  SG_TRY(dump_inputs());
  SG_TRY(bind_sizes());
  std::vector<Unsupported> unsupported;
  SG_TRY(run_->prepare(&unsupported));
  if (!unsupported.empty()) return refusal_of(unsupported);
  say_what_runs_on_host();
  if (!options_.expect.empty()) {  // names that the graph lacks are reported before the run
    std::string file =
        data_file_name(options_.expect, comm_.rank(), has_step(options_.expect) ? options_.first_step : last_step());
    SG_TRY(Expectation::open(run_->program(), alias_, file, tolerance()));
  }
  SG_TRY(agree_on_collectives(comm_, job_, run_->bindings().lookup(), settings()));
  SG_TRY(require_memory_together());
  SG_TRY(run_->reserve());
  return run_->bind_inputs(inputs_->tensors, inputs_->scalars);
}

void RankSession::say_what_runs_on_host() const {
  const std::map<std::string, size_t>& ops = run_->main_graph().on_host();
  if (ops.empty() || !options_.say || !speaks()) return;
  size_t nodes = 0;
  for (const auto& [op, count] : ops) nodes += count;
  options_.say(std::to_string(nodes) + " nodes are computed by the host, for which the device waits: " +
               joined(ops, ", ", [](const auto& op) { return op.first; }));
}

// Whether this rank reports for all ranks of its program.
bool RankSession::speaks() const {
  const std::vector<uint32_t>& same = run_->program().ranks;
  return comm_.rank() == (same.empty() ? 0 : same[0]);
}

ExpectOptions RankSession::tolerance() const {
  ExpectOptions out = options_.tolerance;
  if (options_.compare_with && options_.compared_to)
    out.counterparts = pair_outputs(options_.compared_to->program_of(comm_.rank())->graph, run_->graph());
  return out;
}

// --compare: what the capture that the inputs are of expects, if that records roundings, which two runs lack.
std::string RankSession::recorded_roundings() const {
  const ExpectOptions& given = options_.tolerance;
  if (!options_.compare_with || options_.steps > 1 || given.bitwise || given.rtol || given.atol) return {};
  for (const std::string& pattern : options_.inputs) {
    const std::string beside = recorded_beside(pattern);
    Result<TensorFile> file = TensorFile::open(data_file_name(beside, comm_.rank(), options_.first_step));
    if (file.ok() &&
        std::ranges::any_of(file->metadata(), [](const auto& m) { return m.first.starts_with("rounding."); }))
      return beside;
  }
  return {};
}

// Each rank's state is of the step that the first one's names.
Status RankSession::check_state() const {
  if (options_.state.empty()) return ok_status();
  SG_ASSIGN(const LeftState left, LeftState::open(data_file_name(options_.state, comm_.rank(), 0)));
  if (left.step() == options_.first_step) return ok_status();
  return Error{ErrorKind::unreadable,
               "it was left before step " + std::to_string(left.step()) + ", that of another rank before step " +
                   std::to_string(options_.first_step),
               {left.path()},
               "--state takes what one run left of all its ranks"};
}

Status RankSession::take_inputs() {
  SG_TRY(check_state());
  InputSource source;
  source.bindings = options_.bindings;
  source.may_spare = options_.spare_inputs;
  source.constants = data_file_name(options_.constants, comm_.rank(), options_.first_step);
  set_files(options_.inputs, options_.state, comm_.rank(), options_.first_step, &source);
  source.is_of_all_ranks =
      options_.inputs.size() == 1 && options_.state.empty() && options_.inputs[0].find("{r}") == std::string::npos;
  std::optional<InitMaker> maker;
  if (init_) source.maker = &maker.emplace(*init_, comm_.rank(), *options_.init_seed, &run_->team());
  SG_ASSIGN(inputs_, load_inputs(job_, comm_.rank(), source));
  if (!options_.say || !speaks()) return ok_status();
  const Graph& graph = job_.program_of(comm_.rank())->graph;
  for (size_t i : inputs_->ones) options_.say(input_title(graph, graph.inputs()[i]) + ": 1: the tangent of the loss");
  if (options_.steps > 1 && !inputs_->kept.empty()) options_.say(kept_text(graph, inputs_->kept));
  if (!maker) return ok_status();
  for (const std::string& line : maker->describe(!options_.inputs.empty() || !options_.state.empty()))
    options_.say(line);
  return ok_status();
}

// Settings that must be equal on all ranks for a meaningful run.
std::string RankSession::settings() const {
  return "seed " + std::to_string(options_.rank.seed) + ", steps " + std::to_string(options_.steps) + " from " +
         std::to_string(options_.first_step) + ", numerics " +
         std::to_string(static_cast<int>(options_.rank.numerics)) + options_.injected;
}

// The ranks of one machine may each fit into memory, but not all together.
Status RankSession::require_memory_together() {
  SG_ASSIGN(const Texts all, comm_.exchange(std::to_string(run_->arena_bytes())));
  int64_t bytes = 0;
  const std::vector<uint32_t> here = comm_.ranks_of_machine();
  for (uint32_t rank : here) bytes += std::atoll(all[rank].c_str());
  if (here.size() < 2 || options_.rank.backends) return ok_status();  // a device reports its own memory
  Status fits = require_memory(bytes);
  if (!fits.ok()) fits.error().message = "for " + std::to_string(here.size()) + " ranks " + fits.error().message;
  return fits;
}

Status RankSession::bind_sizes() {
  const Graph& graph = run_->graph();
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    const Tensor& t = inputs_->tensors[i];
    if (!t.is_none())
      SG_TRY(run_->bindings().bind_shape(graph.type(input.value), t.sizes(), input_title(graph, input)));
  }
  for (const Symbol& s : run_->program().symbols)
    if (auto v = inputs_->symbols.value(s.name); v && s.kind == SymbolKind::input)
      SG_TRY(run_->bindings().bind(s.name, *v));
  return ok_status();
}

bool RankSession::is_due(const std::string& pattern, uint64_t step) const {
  if (pattern.empty()) return false;
  return has_step(pattern) || step == last_step();
}

// A pattern with {step} gives each step its own inputs, loaded into the memory that the run already uses.
Status RankSession::reload_inputs(uint64_t step) {
  InputSource source;
  for (const std::string& pattern : options_.inputs)
    if (has_step(pattern)) source.files.push_back(data_file_name(pattern, comm_.rank(), step));
  if (step == options_.first_step || source.files.empty()) return ok_status();
  source.may_miss = true;  // a batch; inputs that it lacks stay
  source.may_spare = options_.spare_inputs;
  source.bindings = options_.bindings;
  SG_ASSIGN(InputSet next, load_inputs(job_, comm_.rank(), source));
  for (size_t i = 0; i < next.tensors.size(); ++i) {
    const Tensor &from = next.tensors[i], &to = inputs_->tensors[i];
    if (from.is_none()) continue;
    if (!same_shape(from, to))
      return Error{ErrorKind::unreadable,
                   "the inputs of step " + std::to_string(step) + ": " +
                       input_title(run_->graph(), run_->graph().inputs()[i]) + " has another shape than at step " +
                       std::to_string(options_.first_step),
                   {},
                   "steps of one run have inputs of one size"};
    const Tensor inside = run_->tensor(run_->graph().inputs()[i].value);  // another one under Numerics::f64
    SG_TRY(run_->brought());
    cpu::copy(run_->team(), to, from);
    if (!inside.is_none() && inside.data != to.data) cpu::copy(run_->team(), inside, from);
    run_->input_changed(i);
  }
  return ok_status();
}

Status RankSession::run_step(uint64_t step) {
  SG_TRY(reload_inputs(step));
  if (watch_) watch_->begin_step(run_->graph(), inputs_->tensors);
  if (comparison_) comparison_->restart();
  if (profile_ && run_->backend()) SG_TRY(profile_->begin_step(&run_->backend()->clock()));
  auto begin = Profile::Clock::now();
  SG_TRY(run_->run_step(step));
  seconds_ = std::chrono::duration<double>(Profile::Clock::now() - begin).count();
  note_loss();
  SG_TRY(answer(step));
  SG_TRY(run_->brought());
  SG_TRY(begin_update());
  run_->carry_buffers();
  SG_TRY(end_update());
  if (run_->backend()) run_->backend()->reset_scratch();  // what carrying took, which no kernel's end gives back
  if (step == last_step()) SG_TRY(dump_state());
  return profile_ ? profile_->end_step() : ok_status();
}

Status RankSession::answer(uint64_t step) {
  if (is_due(options_.expect, step)) {
    std::string file = data_file_name(options_.expect, comm_.rank(), step);
    SG_ASSIGN(Expectation expected, Expectation::open(run_->program(), alias_, file, tolerance()));
    ExpectReport found = expected.compare(values_);
    if (!found.passed()) found.recorded = recorded_roundings();
    report_.expected.emplace_back(file, std::move(found));
  }
  if (is_due(options_.outputs, step)) {
    std::string name = data_file_name(options_.outputs, comm_.rank(), step);
    SG_ASSIGN(OutputFile file, stage_outputs(name, run_->graph(), alias_, values_));
    written_.add(std::move(file));
  }
  return ok_status();
}

std::optional<double> RankSession::number_of(ValueId v) const {
  if (run_->graph().type(v).kind != TypeKind::tensor) return run_->number(v).to_double();
  if (run_->stored(v).elements() != 1) return std::nullopt;  // do not copy it from a device just to find out
  return number_in(run_->tensor(v));
}

void RankSession::note_loss() {
  const Graph& graph = run_->graph();
  if (const ValueId v = loss_of(graph); !v.is_none()) {
    if (const auto value = number_of(v)) report_.losses.push_back(*value);
    return;
  }
  const bool is_first = report_.numbers.empty();
  size_t at = 0;
  for (const NamedValue& output : numbers_of(graph)) {
    const auto value = number_of(output.value);
    if (!value) continue;
    if (is_first) report_.numbers.push_back({output.name, {}});
    report_.numbers[at++].steps.push_back(*value);
  }
}

// Runs before buffers are carried over, since gradients may be stored in them. If results come from a run in double,
// the recorded graph's own parameters are updated, too.
Status RankSession::begin_update() {
  if (!optimizer_) return ok_status();
  const std::vector<Tensor> carried_to = run_->carried_to();
  if (recorded_optimizer_) {
    const RunValues recorded{[this](ValueId v) { return run_->main_graph().values().tensors[v.index]; }, {}};
    SG_TRY(recorded_optimizer_->begin(recorded, carried_to, run_->team(), nullptr));
  }
  const RunValues stored{[this](ValueId v) { return run_->stored(v); }, {}};
  return optimizer_->begin(stored, carried_to, run_->team(), run_->backend());
}

Status RankSession::end_update() {
  if (!optimizer_) return ok_status();
  if (recorded_optimizer_) SG_TRY(recorded_optimizer_->end(run_->team(), nullptr));
  SG_TRY(optimizer_->end(run_->team(), run_->backend()));
  return run_->stored_changed(optimizer_->inputs());
}

Status RankSession::write_dump() {
  if (!dump_) return ok_status();
  SG_ASSIGN(OutputFile file, dump_->stage(data_file_name(options_.dump, comm_.rank(), last_step())));
  written_.add(std::move(file));
  return ok_status();
}

// Before the step, which may write to its inputs.
Status RankSession::dump_inputs() {
  if (options_.dump_inputs.empty()) return ok_status();
  const std::string name = data_file_name(options_.dump_inputs, comm_.rank(), options_.first_step);
  SG_ASSIGN(OutputFile file, stage_inputs(name, run_->graph(), *inputs_));
  dumped_inputs_.add(std::move(file));
  return ok_status();
}

// After the update: what a further step would begin with.
Status RankSession::dump_state() {
  if (options_.dump_state.empty()) return ok_status();
  const Graph& graph = run_->graph();
  for (size_t i : state_inputs(graph, alias_)) run_->tensor(graph.inputs()[i].value);  // from a device, into *inputs_
  SG_TRY(run_->brought());
  RunState left;
  if (optimizer_) {
    Optimizer& of_results = recorded_optimizer_ ? *recorded_optimizer_ : *optimizer_;
    SG_ASSIGN(left, of_results.state(recorded_optimizer_ ? nullptr : run_->backend()));
  }
  left.step = last_step() + 1;
  const std::string name = data_file_name(options_.dump_state, comm_.rank(), last_step());
  SG_ASSIGN(OutputFile file, stage_state(name, graph, alias_, *inputs_, left));
  written_.add(std::move(file));
  return ok_status();
}

Status RankSession::keep_dump() {
  SG_TRY(dumped_inputs_.commit());
  if (!dump_) return ok_status();
  SG_ASSIGN(OutputFile file, dump_->stage(data_file_name(options_.dump, comm_.rank(), last_step())));
  return file.commit();
}

OutputSet RankSession::take_files() {
  written_.add(std::move(dumped_inputs_));
  return std::move(written_);
}

void RankSession::note_results() {
  if (comparison_) report_.comparison = comparison_->report();
  note_memory();
}

void RankSession::note_memory() {
  report_.arena_bytes = run_->arena_bytes();
  report_.host_bytes = run_->host_bytes();
  report_.pool_bytes = run_->pool_bytes();
  for (const Tensor& t : inputs_->tensors)
    if (!t.is_none()) report_.input_bytes += t.bytes();
  report_.tokens = count_tokens();
  if (options_.explain && speaks()) report_.explained = explain();
  if (profile_) profile_->set_memory(run_->main_graph(), report_.pool_bytes);
}

// Other integers count edges of a graph, classes, positions.
int64_t RankSession::count_tokens() const {
  const std::vector<InputUse> uses = find_input_uses(run_->program(), [](StrId) { return std::optional<int64_t>(); });
  int64_t most = 0;
  for (size_t i = 0; i < inputs_->tensors.size(); ++i) {
    const Tensor& t = inputs_->tensors[i];
    const bool is_given = !t.is_none() && run_->graph().inputs()[i].kind == InputKind::user;
    if (is_given && is_integral(t.dtype) && uses[i].is_embedded) most = std::max(most, t.elements());
  }
  return most;
}

std::vector<std::string> RankSession::explain() const {
  std::vector<std::string> out = run_->main_graph().explain();
  if (!optimizer_) return out;
  const size_t count = optimizer_->parameter_count();
  out.push_back("optimizer: " + std::to_string(count) + (count == 1 ? " parameter is" : " parameters are") +
                " updated by " + (run_->backend() ? run_->backend()->memory().title() : "the processor") +
                ", its state is " + human_bytes(static_cast<double>(optimizer_->state_bytes())));
  return out;
}

void RankSession::end_run() {
  optimizer_.reset();
  recorded_optimizer_.reset();
  run_.reset();
}

}  // namespace sg
