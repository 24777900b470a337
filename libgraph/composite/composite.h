// Composite operators: those that PyTorch defines by others and takes apart itself before anything runs. Exported
// programs and graphs from before autograd hold them. `composites.def` lists them; a recipe a row says what each is
// made of.
//
// Truth     A recipe makes the calls that PyTorch makes, in the same order and with the same numbers, so that the parts
//           compute what the composite does. Where PyTorch has a kernel of its own the parts are within rounding of it.
// Names     The last part has the composite's name and its recorded type; the others are called after their ops.
//           Module, source line, phase and the rest of the metadata go to every part.
// Kept      What a recipe cannot take apart (a rank or a length that is not known, more than kMaxParts parts) stays as
//           it is: an opaque operator, with the reason.
// Cost      Linear in the parts.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/import/import_tally.h"
#include "libgraph/infer/infer.h"

namespace sg {

inline constexpr size_t kMaxCompositeParts = 1 << 16;  // of one call: a recurrent layer has some 15 a step

// By name: an operator with a recipe, or a form of composite_forms.h: with `out=`, for each tensor of lists, no
// operator.
bool is_composite(std::string_view op);
// Also a call of an op of the table in a form of composite_forms.h: numbers alone, an index that is a mask.
bool is_taken_apart(const Graph& graph, NodeId n);

class CompositeCall;
class SeedStreams;

// What was recorded of a composite's results: it holds of the parts' too, or is a guess, and what is inferred counts.
enum class RecordedTypes : uint8_t { hold, are_guesses };

// For the calls of one program, in the order in which they run: a recipe needs the types of what it is given.
class CompositeExpander {
 public:
  CompositeExpander(Program* program, bool rank_local);
  ~CompositeExpander();

  // Puts the parts in the place of the composite `n`, which is erased. Changes nothing when it fails.
  Status expand(Graph* graph, NodeId n, RecordedTypes recorded);

  // Backward nodes that belong to a composite that is gone belong to its last part. Once, when all is expanded.
  void relink();

 private:
  Status expand_form(Graph* graph, NodeId n, RecordedTypes recorded);
  Status replace(Graph* graph, NodeId n, RecordedTypes recorded, CompositeCall* made);

  Program* program_;
  TypeInferrer inferrer_;
  std::unique_ptr<SeedStreams> seeds_;
  // By the composite's id; never walked in order.
  std::unordered_map<Graph*, std::unordered_map<uint32_t, NodeId>> replaced_;
};

// Takes apart all that can be, in order, and infers missing types on the way. Where there is no composite nothing is
// done.
void expand_composites(Program* program, bool rank_local, ImportTally* tally);

// Expands `n`, a composite, and tells the tally what became of it.
void expand_and_tell(CompositeExpander* expander, const Program& program, Graph* graph, NodeId n,
                     RecordedTypes recorded, ImportTally* tally);

// The nested graphs of a program, each behind those that it names: a composite may need to know what they hold.
std::vector<uint32_t> inner_first(const Program& program);
// The largest number of a random stream.
uint32_t last_stream(const Program& program);
// Gives the random nodes that have none a stream each, behind those that there are.
void number_new_streams(Program* program, bool rank_local);

}  // namespace sg
