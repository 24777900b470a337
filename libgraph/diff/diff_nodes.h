// Comparing partners: what of a node, an input or an output is no longer what it was; private to the diff.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libgraph/diff/diff.h"
#include "libgraph/diff/diff_terms.h"
#include "libgraph/text/text_printer.h"

namespace sg {

// The two printers of one comparison; spelling a type or metadata is done once each.
struct DiffPrinters {
  text::TextPrinter a, b;
  DiffPrinters(const Job& job_a, const Job& job_b) : a(job_a), b(job_b) {}
};

class NodeComparer {
 public:
  // `nested_of_a`: by NestedId of A, the partner in B; none = it has none.
  NodeComparer(const GraphDiff& diff, const DiffOptions& options, const std::vector<NestedId>& nested_of_a,
               DiffTerms* terms, DiffPrinters* print)
      : diff_(diff), options_(options), nested_of_a_(nested_of_a), terms_(*terms), print_(*print) {}

  std::vector<Difference> nodes(uint32_t x, uint32_t y);
  std::vector<Difference> inputs(uint32_t i, uint32_t j);
  std::vector<Difference> outputs(uint32_t i, uint32_t j);
  // What of the last two compared differs only in symbols that are numbers on the other side.
  std::vector<Difference> take_numbers() { return std::move(by_number_); }

 private:
  void names(NodeId m, NodeId n);
  void arguments(uint32_t x, uint32_t y);
  void argument(const Node& x, const Node& y, size_t i);
  void types(NodeId m, NodeId n);
  void type(const std::string& what, ValueId v, ValueId w);
  void context(NodeId m, NodeId n);
  void metadata(NodeId m, NodeId n);
  template <class Get>
  void field(const std::string& what, const NodeMeta& x, const NodeMeta& y, bool same, const Get& get);
  void exchange(const NodeMeta& x, const NodeMeta& y);
  void copies(const NodeMeta& x, const NodeMeta& y);

  enum class Likeness : uint8_t { same, other_numbers, other_values, different };  // other_numbers: see take_numbers
  Likeness compare(const Arg& a, const Arg& b);
  Likeness compare_plainly(const Arg& a, const Arg& b);
  Likeness compare_items(const Arg& a, const Arg& b);
  bool same_value(ValueId v, ValueId w) const;
  bool same_number(const Arg& a, const Arg& b) const;
  std::optional<int64_t> number(int s, const Arg& arg) const;
  void sharding(const Sharding& x, const Sharding& y);
  bool same_named(StrId a, StrId b);  // names of nodes that metadata speaks of
  void add(Aspect aspect, std::string what, std::string before, std::string after);

  const Graph& graph_a() const { return *diff_.a; }
  const Graph& graph_b() const { return *diff_.b; }

  const GraphDiff& diff_;
  const DiffOptions& options_;
  const std::vector<NestedId>& nested_of_a_;
  DiffTerms& terms_;
  DiffPrinters& print_;
  std::vector<Difference> out_, by_number_;
};

}  // namespace sg
