#include "tests/support/random_edit.h"

#include <algorithm>
#include <string>

#include "libgraph/infer/infer.h"
#include "libgraph/op.h"

namespace sg::test {
namespace {

constexpr DType kTypes[] = {DType::f32,     DType::f32,  DType::f32, DType::i64, DType::i64,
                            DType::boolean, DType::bf16, DType::f64, DType::i32, DType::f16,
                            DType::u8,      DType::i16,  DType::i8,  DType::c64, DType::c128};
constexpr int64_t kSizes[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 8, 17};
constexpr int64_t kNumbers[] = {0,
                                0,
                                1,
                                1,
                                2,
                                2,
                                3,
                                4,
                                5,
                                -1,
                                -1,
                                -2,
                                -3,
                                7,
                                16,
                                100,
                                -100,
                                int64_t{1} << 31,
                                int64_t{1} << 40,
                                INT64_MAX,
                                INT64_MIN,
                                INT64_MAX - 1,
                                -(int64_t{1} << 33)};
constexpr std::string_view kWords[] = {"none",  "tanh", "tanhh", "floor", "trunc", "sum",      "summ",
                                       "prod",  "mean", "amax",  "amin",  "add",   "multiply", "left",
                                       "right", "avg",  "min",   "max",   ""};
constexpr double kFloats[] = {0, 1, 0.5, -1, 0.1, 1e-5, 2, 1e30, -1e308};

class Editor {
 public:
  Editor(Job& job, Program& program, Graph& graph, Rng& rng)
      : job_(job), program_(program), graph_(graph), pool_(graph.pool()), rng_(rng) {}

  bool add_call(const OpInfo& op, int attempts) {
    for (int i = 0; i < attempts; ++i)
      if (try_call(op)) return true;
    return false;
  }

  void edit() {
    switch (rng_.below(6)) {
      case 0:
      case 1: return change_input();
      case 2: return swap_operands();
      case 3: return rename_op();
      default: return change_argument();
    }
  }

  void remove_node() {
    std::vector<NodeId> unused;
    for (NodeId n : graph_.nodes()) {
      bool used = false;
      for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) used |= graph_.is_used(graph_.node(n).result(i));
      if (!used) unused.push_back(n);
    }
    if (!unused.empty()) graph_.erase(rng_.pick(unused));
  }

  // Infers the types of all results from their arguments; types that the rules refuse stay unknown.
  void infer_again() {
    for (NodeId n : graph_.nodes()) {
      if (keeps_types(n)) continue;
      for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
        graph_.set_type(graph_.node(n).result(i), Pool::kUnknownType);
    }
    infer_missing_types(program_);
  }

 private:
  // Results whose types only the record states.
  bool keeps_types(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    return op == nullptr || op->has(kBindsSymbol) || op->name == "_dtensor.shard_dim_alltoall";
  }

  // --- picking existing values ---

  std::vector<ValueId> tensors() const {
    std::vector<ValueId> out;
    auto add = [&](ValueId v) {
      if (graph_.type(v).kind == TypeKind::tensor) out.push_back(v);
    };
    for (const Input& input : graph_.inputs()) add(input.value);
    for (NodeId n : graph_.nodes())
      for (uint32_t i = 0; i < graph_.node(n).result_count; ++i) add(graph_.node(n).result(i));
    return out;
  }

  Expr size() { return pool_.exprs.constant(rng_.pick(kSizes)); }

  Type random_type() {
    std::vector<ValueId> known = tensors();
    Type t = known.empty() ? Type() : graph_.type(rng_.pick(known));
    if (known.empty() || rng_.percent(30)) {
      t = Type();
      for (uint64_t rank = rng_.below(5); rank > 0; --rank) t.shape.push_back(size());
      t.dtype = rng_.pick(kTypes);
    }
    t.kind = TypeKind::tensor;
    t.device = pool_.str("cpu");
    t.offset = pool_.exprs.constant(0);
    if (rng_.percent(50)) change_shape(&t);
    if (rng_.percent(40)) t.dtype = rng_.pick(kTypes);
    t.stride = pool_.contiguous_strides(t.shape);
    if (rng_.percent(10)) change_strides(&t);
    return t;
  }

  void change_shape(Type* t) {
    size_t at = rng_.below(t->shape.size() + 1);
    auto place = t->shape.begin() + static_cast<std::ptrdiff_t>(at);
    if (at == t->shape.size() || (rng_.percent(20) && t->shape.size() < 6)) t->shape.insert(place, size());
    else if (rng_.percent(30)) t->shape.erase(place);
    else *place = size();
  }

  // Gaps, permuted axes and expanded ones.
  void change_strides(Type* t) {
    if (t->stride.empty()) return;
    size_t at = rng_.below(t->stride.size());
    switch (rng_.below(3)) {
      case 0:
        std::swap(t->stride[at], t->stride[rng_.below(t->stride.size())]),
            std::swap(t->shape[at], t->shape[rng_.below(t->shape.size())]);
        break;
      case 1: t->stride[at] = pool_.exprs.constant(0); break;
      default:
        for (Expr& stride : t->stride) stride = pool_.exprs.mul(stride, pool_.exprs.constant(2));
    }
  }

  ValueId new_input() {
    Input input;
    input.kind = InputKind::buffer;  // so that it may be written
    input.fqn = pool_.strings.intern(pool_.strings.str(graph_.fresh_name("b")));
    return graph_.add_input("b", pool_.types.intern(random_type()), input);
  }

  Arg tensor() {
    std::vector<ValueId> known = tensors();
    if (known.empty() || (rng_.percent(25) && graph_.inputs().size() < 40)) return Arg::value(new_input());
    return Arg::value(rng_.pick(known));
  }

  // --- arguments from the schema ---

  Arg number() { return Arg::integer(rng_.percent(70) ? rng_.pick(kNumbers) % 6 : rng_.pick(kNumbers)); }

  Arg numbers() {
    ArgList items;
    for (uint64_t n = rng_.below(5); n > 0; --n) items.push_back(number());
    if (rng_.percent(40))  // the sizes of some tensor
      if (std::vector<ValueId> known = tensors(); !known.empty()) {
        items.clear();
        for (Expr e : graph_.type(rng_.pick(known)).shape) items.push_back(Arg::expr(e));
        if (!items.empty() && rng_.percent(30)) items[rng_.below(items.size())] = number();
      }
    for (Arg& item : items)
      if (item.is(ArgKind::expr))
        if (auto value = pool_.exprs.constant_value(item.as_expr())) item = Arg::integer(*value);
    return Arg::list(std::move(items));
  }

  Arg text(ArgKind kind, std::string_view word) { return Arg::text(kind, pool_.str(word)); }

  Arg argument(const Param& p) {
    switch (p.kind) {
      case ParamKind::tensor: return rng_.percent(3) ? number() : tensor();
      case ParamKind::tensor_list: {
        ArgList items;
        for (uint64_t n = rng_.below(4); n > 0; --n) items.push_back(rng_.percent(15) ? Arg::none() : tensor());
        return Arg::list(std::move(items));
      }
      case ParamKind::scalar:
      case ParamKind::floating: return rng_.percent(50) ? Arg::floating(rng_.pick(kFloats)) : number();
      case ParamKind::integer: return number();
      case ParamKind::integer_list: return rng_.percent(10) ? number() : numbers();
      case ParamKind::boolean: return Arg::boolean(rng_.percent(50));
      case ParamKind::string: return text(ArgKind::string, rng_.pick(kWords));
      case ParamKind::dtype: return Arg::dtype(rng_.pick(kTypes));
      case ParamKind::layout: return text(ArgKind::layout, "strided");
      case ParamKind::device: return text(ArgKind::device, "cpu");
      case ParamKind::memory_format:
        return text(ArgKind::memory_format, rng_.percent(50) ? "contiguous_format" : "preserve_format");
      case ParamKind::group:
        return job_.groups.empty() ? Arg::none()
                                   : Arg::group(GroupId(static_cast<uint32_t>(rng_.below(job_.groups.size()))));
      case ParamKind::graph:
        return program_.nested.empty()
                   ? Arg::none()
                   : Arg::graph(NestedId(static_cast<uint32_t>(rng_.below(program_.nested.size()))));
      case ParamKind::any: return rng_.percent(50) ? numbers() : tensor();
    }
    return Arg::none();
  }

  std::vector<Arg> arguments(const OpInfo& op) {
    std::vector<Arg> out;
    bool by_name = false;
    for (const Param& p : op.params) {
      bool may_lack = p.optional || p.has_default;
      if (may_lack && rng_.percent(50)) {
        by_name = true;
        continue;
      }
      Arg a = argument(p);
      if (by_name || p.keyword_only) a.set_key(pool_.str(p.name)), by_name = true;
      out.push_back(std::move(a));
    }
    return out;
  }

  // --- calls ---

  bool try_call(const OpInfo& op) {
    NodeSpec spec;
    spec.op = pool_.op(op.name);
    spec.args = arguments(op);
    size_t results = op.returns_list ? 1 + rng_.below(4) : op.results.size();
    spec.is_tuple = op.returns_list || results > 1;
    spec.result_types.assign(results, Pool::kUnknownType);
    NodeId n = graph_.append(spec);
    if (draws_random(graph_, n)) {
      NodeMeta meta = graph_.meta(n);
      meta.random.stream = 1000 + n.index;
      graph_.set_meta(n, std::move(meta));
    }
    auto types = infer_types(program_, graph_, n);
    if (!types.ok()) return graph_.erase(n), false;
    for (uint32_t i = 0; i < results; ++i) graph_.set_type(graph_.node(n).result(i), pool_.types.intern((*types)[i]));
    for (uint32_t i = 0; i < results; ++i) {
      Output output;
      output.value = graph_.node(n).result(i);
      if ((*types)[i].kind == TypeKind::tensor) graph_.add_output(output);
    }
    return true;
  }

  // --- edits of existing nodes ---

  template <class Fn>
  void change_node(const Fn& change) {
    std::vector<NodeId> nodes;
    for (NodeId n : graph_.nodes()) nodes.push_back(n);
    if (nodes.empty()) return;
    NodeId n = rng_.pick(nodes);
    std::vector<Arg> args = graph_.node(n).args;
    if (args.empty()) return;
    change(n, &args);
    graph_.set_args(n, std::move(args));
  }

  void change_input() {
    if (graph_.inputs().empty()) return;
    ValueId v = rng_.pick(graph_.inputs()).value;
    Type t = graph_.type(v);
    if (t.kind != TypeKind::tensor) return;
    if (rng_.percent(70)) change_shape(&t), t.stride = pool_.contiguous_strides(t.shape);
    else if (rng_.percent(50)) t.dtype = rng_.pick(kTypes);
    else change_strides(&t);
    graph_.set_type(v, pool_.types.intern(std::move(t)));
  }

  // Swaps two operands, or replaces one by another value defined before the node.
  void swap_operands() {
    change_node([&](NodeId n, std::vector<Arg>* args) {
      if (rng_.percent(50) && args->size() > 1) {
        size_t a = rng_.below(args->size()), b = rng_.below(args->size());
        StrId key_a = (*args)[a].key(), key_b = (*args)[b].key();
        std::swap((*args)[a], (*args)[b]);
        (*args)[a].set_key(key_a), (*args)[b].set_key(key_b);
        return;
      }
      std::vector<ValueId> known;
      for (ValueId v : tensors())
        if (graph_.value(v).def.is_none() || graph_.before(graph_.value(v).def, n)) known.push_back(v);
      if (known.empty()) return;
      ValueId taken = rng_.pick(known);
      bool done = false;
      for (Arg& arg : *args)
        arg.walk_mutable([&](Arg& a) {
          if (!a.is(ArgKind::value) || done || rng_.percent(50)) return;
          a.set_value(taken);
          done = true;
        });
    });
  }

  // Renames to another op of the same family: its neighbour in the table.
  void rename_op() {
    std::vector<NodeId> nodes;
    for (NodeId n : graph_.nodes()) nodes.push_back(n);
    if (nodes.empty()) return;
    NodeId n = rng_.pick(nodes);
    const OpInfo* op = graph_.op_info(n);
    if (op == nullptr) return;
    auto at = op - all_ops().data() + rng_.between(-3, 3);
    if (at < 0 || at >= static_cast<std::ptrdiff_t>(all_ops().size())) return;
    const OpInfo& other = all_ops()[static_cast<size_t>(at)];
    if (other.results.size() == op->results.size() && other.has(kRandom) == op->has(kRandom))
      graph_.set_op(n, pool_.op(other.name));
  }

  void change_argument() {
    change_node([&](NodeId n, std::vector<Arg>* args) {
      if (rng_.percent(10)) {
        args->erase(args->begin() + static_cast<std::ptrdiff_t>(rng_.below(args->size())));
        return;
      }
      bool done = false;
      for (Arg& arg : *args)
        arg.walk_mutable([&](Arg& a) {
          if (done || rng_.percent(60)) return;
          done = change(&a);
        });
      (void)n;
    });
  }

  bool change(Arg* a) {
    StrId key = a->key();
    switch (a->kind()) {
      case ArgKind::integer:
        *a = rng_.percent(50) ? Arg::integer(static_cast<int64_t>(static_cast<uint64_t>(a->as_int()) +
                                                                  static_cast<uint64_t>(rng_.between(-2, 2))))
                              : number();
        break;
      case ArgKind::boolean: *a = Arg::boolean(!a->as_bool()); break;
      case ArgKind::floating: *a = Arg::floating(rng_.pick(kFloats)); break;
      case ArgKind::string: *a = text(ArgKind::string, rng_.pick(kWords)); break;
      case ArgKind::dtype: *a = Arg::dtype(rng_.pick(kTypes)); break;
      case ArgKind::none: *a = rng_.percent(50) ? number() : tensor_before_all(); break;
      case ArgKind::list:
        if (rng_.percent(50) && !a->items().empty())
          a->mutable_items().erase(a->mutable_items().begin() +
                                   static_cast<std::ptrdiff_t>(rng_.below(a->items().size())));
        else if (rng_.percent(50))
          a->mutable_items().push_back(a->items().empty() ? number() : a->items()[rng_.below(a->items().size())]);
        else return false;
        break;
      default: return false;
    }
    a->set_key(key);
    return true;
  }

  Arg tensor_before_all() {
    if (graph_.inputs().empty()) return Arg::none();
    return Arg::value(rng_.pick(graph_.inputs()).value);
  }

  Job& job_;
  Program& program_;
  Graph& graph_;
  Pool& pool_;
  Rng& rng_;
};

}  // namespace

bool add_random_call(Job& job, Program& program, const OpInfo& op, Rng& rng, int attempts) {
  return Editor(job, program, program.graph, rng).add_call(op, attempts);
}

void edit_job(Job& job, Rng& rng, const EditOptions& options) {
  if (job.programs.empty()) return;
  Program& program = *job.programs[rng.below(job.programs.size())];
  bool nested = !program.nested.empty() && rng.percent(25);
  Graph& graph = nested ? program.nested[rng.below(program.nested.size())]->graph : program.graph;
  Editor editor(job, program, graph, rng);
  if (graph.node_count() > options.max_nodes) {
    editor.remove_node();
  } else if (!nested && rng.percent(50)) {
    const OpInfo& op =
        options.ops.empty() ? all_ops()[rng.below(all_ops().size())] : *options.ops[rng.below(options.ops.size())];
    if (!op.has(kHigherOrder)) editor.add_call(op, 30);
  } else {
    editor.edit();
  }
  editor.infer_again();
}

}  // namespace sg::test
