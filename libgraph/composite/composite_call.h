// CompositeCall: one call of a composite operator as its recipe sees it: arguments by the schema's names in, parts out.
//
// A recipe is straight-line code. The first thing that goes wrong (an argument that is missing, a size that is not
// known, a part that its op's rule refuses) is kept; what is asked afterwards answers with something harmless, and the
// driver throws the parts away. So a recipe checks only what decides its own loops.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "libgraph/infer/infer.h"
#include "libgraph/op.h"

namespace sg {

using Values = std::vector<ValueId>;
using Numbers = std::vector<int64_t>;

// An argument of a part, from whatever the recipe has at hand.
struct PartArg {
  PartArg(Arg a) : arg(std::move(a)) {}  // NOLINT: implicit, as all of these
  PartArg(ValueId v) : arg(v.is_none() ? Arg::none() : Arg::value(v)) {}
  PartArg(const Values& list);
  PartArg(const Numbers& list);
  PartArg(const ArgList& list) : arg(Arg::list(list)) {}
  PartArg(bool b) : arg(Arg::boolean(b)) {}
  PartArg(int n) : arg(Arg::integer(n)) {}
  PartArg(int64_t n) : arg(Arg::integer(n)) {}
  PartArg(double x) : arg(Arg::floating(x)) {}
  PartArg(DType t) : arg(Arg::dtype(t)) {}
  Arg arg;
};
using PartArgs = std::vector<PartArg>;

// The random streams of seeds that are values: an op draws the same by the same seed, however often. All but the first
// are copies of it, drawn again (a backward that was traced on its own does).
class SeedStreams {
 public:
  explicit SeedStreams(bool rank_local) : rank_local_(rank_local) {}
  void mark(const Program& program, Graph* graph, NodeId drawing, ValueId seed);

 private:
  struct First {
    NodeId node;
    uint32_t stream;
  };
  // By the seed, its place in a tensor of them, the op and the type of what is drawn; found by key, never walked.
  std::map<std::tuple<const Graph*, uint32_t, int64_t, uint32_t, uint32_t>, First> firsts_;
  uint32_t last_ = 0;
  bool rank_local_;
};

class CompositeCall {
 public:
  CompositeCall(Program* program, Graph* graph, NodeId node, const OpInfo& schema, TypeInferrer* inferrer,
                SeedStreams* seeds);

  // --- arguments; defaults of the schema filled in ---
  bool has(std::string_view name) const;        // given, not None
  const Arg& arg(std::string_view name) const;  // as it is; None when left out
  ValueId tensor(std::string_view name);        // none when not given, a failure unless optional
  Values tensors(std::string_view name);
  int64_t integer(std::string_view name);  // a known number
  double number(std::string_view name);
  bool flag(std::string_view name);
  std::string text(std::string_view name) const;
  Numbers integers(std::string_view name);  // one number stands for a list of it
  ArgList sizes(std::string_view name);     // numbers, known or symbolic
  std::optional<DType> dtype(std::string_view name) const;

  const Graph* body(std::string_view name) const;  // of an argument that is a nested graph; null when it is none
  const Program& program() const { return *program_; }

  // --- what is known of a value ---
  const Type& type(ValueId v) const;
  DType dtype_of(ValueId v) const { return type(v).dtype; }
  int rank(ValueId v) const { return static_cast<int>(type(v).shape.size()); }
  Expr extent(ValueId v, int dim) const;  // negative ones count from the end
  Arg size(ValueId v, int dim) const { return as_arg(extent(v, dim)); }
  ArgList shape(ValueId v) const;
  int64_t known_size(ValueId v, int dim);  // a failure where it is symbolic
  bool is_size(ValueId v, int dim, int64_t n) const;
  bool same_size(Expr a, Expr b) const { return a == b; }  // interned, in normal form
  int wrap(int64_t dim, int rank);                         // negative ones count from the end
  ExprPool& exprs() const;
  Arg as_arg(Expr e) const;
  Expr as_expr(const Arg& arg);                    // of a size argument
  Arg product(ValueId v, int from, int to) const;  // of the sizes in [from, to)
  // Whether result `i` of the whole is read, and by operators alone whose names hold `word`.
  bool is_read_only_by(uint32_t i, std::string_view word) const;
  const Type& recorded(uint32_t i) const;  // what the capture says of result `i` of the whole

  // --- parts ---
  // "mul.Tensor" is aten.mul.Tensor, "exp" aten.exp.default. The first result.
  ValueId make(std::string_view op, PartArgs args);
  // One whose size no rule gives: `recorded` has it, perhaps as a symbol of the data, which the part defines.
  ValueId make_found(std::string_view op, PartArgs args, Type recorded);
  // One that draws random numbers by a seed that is a value: those by the same seed draw the same.
  ValueId make_by_seed(std::string_view op, PartArgs args, ValueId seed);
  // All results; `count` of them where the op returns a list.
  Values make_all(std::string_view op, PartArgs args, size_t count = 0);
  PartArg key(std::string_view name, PartArg value) const;  // a keyword argument
  Arg word(std::string_view text) const;                    // a string
  PartArg memory_format(std::string_view name) const;       // as the keyword argument of that name
  ValueId zeros(ArgList shape, ValueId like);               // of its element type and device
  ValueId one_number(ValueId v);                            // a tensor of one element, without its dimensions

  void give(ValueId v);            // one more result of the composite
  void give_own(ValueId v);        // one that is not as PyTorch has it: its recorded type is not its
  void write_to(const Arg& self);  // the one result is copied into `self`, which takes its place
  void fail(std::string message);
  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }

  // --- for the driver ---
  const Values& results() const { return given_; }
  bool has_own_type(ValueId v) const { return std::find(own_.begin(), own_.end(), v) != own_.end(); }
  const std::vector<NodeId>& parts() const { return parts_; }
  Status bind();

 private:
  const Param* param(std::string_view name) const;
  bool add_part(std::string_view op, PartArgs args, size_t count, NodeId* n, const Type* recorded = nullptr);
  std::string op_name(std::string_view op) const;

  Program* program_;
  Graph* graph_;
  NodeId node_;
  const OpInfo& schema_;
  TypeInferrer* inferrer_;
  SeedStreams* seeds_;
  std::vector<Arg> bound_;  // by parameter; defaults filled in
  std::vector<NodeId> parts_;
  bool has_drawn_ = false;
  Values given_, own_;
  std::optional<Error> error_;
};

using Recipe = void (*)(CompositeCall& c);

}  // namespace sg
