#include <algorithm>
#include <charconv>

#include "libgraph/base/large_pages.h"
#include "libgraph/binary/binary.h"
#include "libgraph/names.h"
#include "libgraph/text/text.h"
#include "libgraph/text/text_printer.h"

namespace sg::text {

namespace {

constexpr size_t kBytesOfNode = 128;  // an estimate: growing the buffer later costs a copy

// Counts the devices of a type's tensors, `weight` times each; walks nested lists to the maximum depth of types.
void count_devices(const Pool& pool, TypeId type, uint64_t weight, int depth, std::vector<uint64_t>* by_string) {
  const Type& t = pool.types[type];
  if (t.kind == TypeKind::tensor && t.device) {
    if (by_string->size() <= t.device.index) by_string->resize(t.device.index + 1);
    (*by_string)[t.device.index] += weight;
  }
  if (depth < kMaxDepth)
    for (TypeId element : t.elements) count_devices(pool, element, weight, depth + 1, by_string);
}

void count_types(const Graph& graph, std::vector<uint64_t>* by_type) {
  for (const Input& input : graph.inputs()) ++(*by_type)[graph.value(input.value).type.index];
  for (NodeId n : graph.nodes())
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
      ++(*by_type)[graph.value(graph.node(n).result(i)).type.index];
}

}  // namespace

StrId most_frequent_device(const Job& job) {
  std::vector<uint64_t> by_type(job.pool->types.size()), by_string;
  for (const auto& program : job.programs) {
    count_types(program->graph, &by_type);
    for (const auto& nested : program->nested) count_types(nested->graph, &by_type);
  }
  for (uint32_t i = 0; i < by_type.size(); ++i)
    if (by_type[i]) count_devices(*job.pool, TypeId(i), by_type[i], 0, &by_string);
  StrId best;
  for (uint32_t i = 0; i < by_string.size(); ++i) {
    if (by_string[i] == 0) continue;
    bool is_better = !best || by_string[i] > by_string[best.index] ||
                     (by_string[i] == by_string[best.index] && job.pool->strings[StrId(i)] < job.pool->strings[best]);
    if (is_better) best = StrId(i);
  }
  return best;
}

TextPrinter::TextPrinter(const Job& job) : job_(job), pool_(*job.pool), device_(most_frequent_device(job)) {}

std::string TextPrinter::job() {
  size_t nodes = 0;
  for (const auto& p : job_.programs) nodes += p->graph.node_count();
  out_.reserve(kBytesOfNode * nodes);
  advise_large_pages(out_.data(), out_.capacity());
  header();
  for (const auto& p : job_.programs) program(*p);
  return std::move(out_);
}

std::string TextPrinter::node_alone(const Program& program, const Graph& graph, NodeId n) {
  node(program, graph, n);
  return std::move(out_);
}

std::string TextPrinter::type_alone(TypeId type) { return type_text(type); }

std::string TextPrinter::arg_alone(const Program& program, const Graph& graph, const Arg& arg) {
  return captured([&] { argument(program, graph, arg); });
}

// What a line writer writes, without indentation and line end.
template <class Write>
std::string TextPrinter::line_alone(const Write& write) {
  std::string line = captured(write);
  size_t begin = line.find_first_not_of(' '), end = line.find_last_not_of("\n ");
  return begin == std::string::npos ? std::string() : line.substr(begin, end + 1 - begin);
}

std::string TextPrinter::input_alone(const Graph& graph, const Input& i) {
  return line_alone([&] { input(graph, i); });
}
std::string TextPrinter::output_alone(const Graph& graph, const Output& o) {
  return line_alone([&] { output(graph, o); });
}
std::string TextPrinter::symbol_alone(const Symbol& s) {
  return line_alone([&] { symbol(s); });
}
std::string TextPrinter::guard_alone(const Guard& g) {
  return line_alone([&] { guard(g); });
}
std::string TextPrinter::group_alone(const Group& g) {
  return line_alone([&] { group(g); });
}
std::string TextPrinter::mesh_alone(const Mesh& m) {
  return line_alone([&] { mesh(m); });
}
std::string TextPrinter::meta_alone(const NodeMeta& m) {
  return line_alone([&] { metadata(m); });
}
std::string TextPrinter::source_alone(SourceId s) {
  return line_alone([&] { source(s); });
}
std::string TextPrinter::sharding_alone(const Sharding& s) {
  return line_alone([&] { sharding(s); });
}

// --- header ---

void TextPrinter::header() {
  put("sg "), number(kSchemaMajor), put('.'), number(kSchemaMinor);
  if (job_.title && job_.title != StringTable::kEmpty) put(" job "), append_quoted(text_of(job_.title), &out_);
  put(" world "), number(job_.world), put('\n');
  auto entries = [&](std::string_view keyword, const std::vector<KeyValue>& list) {
    for (const KeyValue& kv : list) {
      put(keyword), append_quoted(text_of(kv.key), &out_), put(' '), json(kv.json), put('\n');
    }
  };
  entries("producer ", job_.producer);
  if (!job_.note.empty()) put("note "), append_quoted(job_.note, &out_), put('\n');
  for (const Mesh& m : job_.meshes) mesh(m);
  for (const Group& g : job_.groups) group(g);
  entries("extra ", job_.extra);
  if (device_) put("device "), text<is_device_char>(device_), put('\n');
  for (const Provenance& p : job_.provenance) provenance(p);
}

void TextPrinter::mesh(const Mesh& mesh) {
  put("mesh ");
  if (mesh.name && mesh.name != StringTable::kEmpty) word(mesh.name), put(' ');
  put('[');
  for (size_t i = 0; i < std::min(mesh.axes.size(), mesh.shape.size()); ++i) {
    if (i) put(", ");
    text<is_axis_char>(mesh.axes[i]), put(' '), number(mesh.shape[i]);
  }
  put("]\n");
}

void TextPrinter::group(const Group& group) {
  put("group @");
  plain_or_quoted<is_axis_char>(text_of(group.axis));
  if (group.ordinal) put(':'), number(group.ordinal);
  for (const GroupPart& part : group.parts) group_part(part);
  if (group.priority) put(" priority "), number(group.priority);
  put('\n');
}

// A name that all ranks of the part share is written once.
void TextPrinter::group_part(const GroupPart& part) {
  put(" ["), ranks(part.ranks), put(']');
  if (part.aliases.empty()) return;
  std::vector<uint32_t> sorted = part.ranks;
  std::sort(sorted.begin(), sorted.end());
  bool is_common = sorted.size() == part.aliases.size();
  for (size_t i = 0; is_common && i < sorted.size(); ++i)
    is_common = part.aliases[i].rank == sorted[i] && part.aliases[i].name == part.aliases[0].name;
  if (is_common) {
    put(' '), append_quoted(text_of(part.aliases[0].name), &out_);
    return;
  }
  for (size_t i = 0; i < part.aliases.size(); ++i) {
    put(i ? ", " : " {"), number(part.aliases[i].rank), put(' ');
    append_quoted(text_of(part.aliases[i].name), &out_);
  }
  put('}');
}

void TextPrinter::provenance(const Provenance& p) {
  put("from "), text<is_tag_char>(p.tool), put(' '), text<is_tag_char>(p.version);
  if (!p.options.empty()) put(' '), key_values(p.options);
  if (p.input_digest) put(' '), text<is_tag_char>(p.input_digest);
  put('\n');
}

// --- graphs ---

void TextPrinter::graph_line(const Program& program) {
  put("\ngraph rank ");
  if (program.ranks.empty()) put('*');
  else ranks(program.ranks);
}

void TextPrinter::program(const Program& program) {
  graph_line(program), put('\n');
  for (const Symbol& s : program.symbols) symbol(s);
  for (const Guard& g : program.guards) guard(g);
  graph(program, program.graph);
  for (const auto& nested : program.nested) {
    graph_line(program), put(" nested "), word(nested->name), put('\n');
    graph(program, nested->graph);
  }
}

void TextPrinter::symbol(const Symbol& symbol) {
  put("  symbol "), word(symbol.name), put(' '), put(name_of(symbol.kind));
  if (symbol.min || symbol.max) {
    put(" [");
    if (symbol.min) number(*symbol.min);
    else put("-inf");
    put(", ");
    if (symbol.max) number(*symbol.max);
    else put("inf");
    put(']');
  }
  if (symbol.hint) put(" hint "), number(*symbol.hint);
  if (symbol.divisor != 1) put(" divisor "), number(symbol.divisor);
  if (symbol.source) put(' '), append_quoted(text_of(symbol.source), &out_);
  put('\n');
}

void TextPrinter::guard(const Guard& guard) {
  put("  guard "), expr(guard.left), put(' '), put(name_of(guard.relation)), put(' '), expr(guard.right);
  if (guard.source) put(" at "), source(guard.source);
  put('\n');
}

void TextPrinter::graph(const Program& program, const Graph& graph) {
  phase_ = Phase::forward, module_ = StrId(), source_ = SourceId(), in_block_ = false;
  for (const Input& i : graph.inputs()) input(graph, i);
  if (graph.node_count() && !graph.inputs().empty()) put('\n');
  for (NodeId n : graph.nodes()) {
    context(graph.node(n));
    size_t begin = out_.size();
    put(in_block_ ? "    " : "  ");
    node_head(program, graph, n);
    size_t width = out_.size() - begin;
    if (width < kTypeColumn) {
      for (size_t i = begin; i < out_.size(); ++i) width -= (out_[i] & 0xC0) == 0x80;  // characters, not bytes
      out_.append(kTypeColumn - width, ' ');
    }
    node_types(graph, graph.node(n));
    node_metadata(graph, graph.node(n));
    put('\n');
  }
  if (!graph.outputs().empty()) put('\n');
  for (const Output& o : graph.outputs()) output(graph, o);
}

// Lines that hold for what follows: a block line for phase and module, an `at` line for the source line.
void TextPrinter::context(const Node& node) {
  if (node.phase != phase_ || node.module != module_) {
    phase_ = node.phase, module_ = node.module, source_ = SourceId(), in_block_ = true;
    put("  "), put(name_of(phase_)), put(' '), word(module_), put('\n');
  }
  if (node.source == source_) return;
  source_ = node.source;
  put(in_block_ ? "    at " : "  at "), source(source_), put('\n');
}

void TextPrinter::input(const Graph& graph, const Input& input) {
  const Value& v = graph.value(input.value);
  put("  "), put(name_of(input.kind)), put(' '), value_name(text_of(v.name)), put(" : "), put(type_text(v.type));
  if (input.fqn) put(' '), append_quoted(text_of(input.fqn), &out_);
  if (input.of) put(" of "), append_quoted(text_of(input.of), &out_);
  if (input.attribute) put(" attribute "), word(input.attribute);
  sharding(input.sharding);
  if (input.digest) put(" data "), text<is_tag_char>(input.digest);
  extra(input.extra);
  put('\n');
}

void TextPrinter::output(const Graph& graph, const Output& output) {
  put("  ");
  if (output.kind == OutputKind::opaque) put("output opaque");
  else put(name_of(output.kind));
  if (output.value) put(' '), value_name(graph.name(output.value));
  else if (output.kind != OutputKind::none) put(" none");
  if (output.of) put(" of "), value_name(graph.name(output.of));
  if (output.of_name) put(" of "), append_quoted(text_of(output.of_name), &out_);
  if (output.attribute) put(" attribute "), word(output.attribute);
  sharding(output.sharding);
  extra(output.extra);
  if (output.of && graph.value(output.of).def.is_none()) {  // a comment for readers: %arg7_1 says little
    StrId fqn = graph.inputs()[graph.value(output.of).index].fqn;
    if (fqn) put("  # "), append_quoted(text_of(fqn), &out_);
  }
  put('\n');
}

// --- nodes ---

void TextPrinter::node(const Program& program, const Graph& graph, NodeId n) {
  node_head(program, graph, n);
  node_types(graph, graph.node(n));
  node_metadata(graph, graph.node(n));
}

void TextPrinter::node_head(const Program& program, const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  if (node.result_count == 0) value_name(text_of(node.label));
  for (uint32_t i = 0; i < node.result_count; ++i) {
    if (i) put(", ");
    value_name(graph.name(node.result(i)));
  }
  put(node.is_tuple && node.result_count < 2 ? ", = " : " = ");
  op_name(node.op);
  put('('), arguments(program, graph, node), put(')');
}

void TextPrinter::node_types(const Graph& graph, const Node& node) {
  put(" : ");
  if (node.result_count == 0) put("()");
  for (uint32_t i = 0; i < node.result_count; ++i) {
    if (i) put(", ");
    put(type_text(graph.value(node.result(i)).type));
  }
}

// --- helpers ---

void TextPrinter::number(int64_t v) {
  char digits[24];
  out_.append(digits, std::to_chars(digits, digits + sizeof digits, v).ptr);
}

void TextPrinter::expr(Expr e) {
  if (e) pool_.exprs.print_to(e, &out_);
  else put('0');
}

void TextPrinter::exprs(const std::vector<Expr>& list) {
  put('[');
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) put(", ");
    expr(list[i]);
  }
  put(']');
}

void TextPrinter::ranks(const std::vector<uint32_t>& list) {
  for (size_t i = 0; i < list.size();) {
    size_t end = i + 1;
    while (end < list.size() && list[end] == list[end - 1] + 1) ++end;
    if (i) put(' ');
    number(list[i]);
    if (end - i < kRunLength) end = i + 1;
    else put(".."), number(list[end - 1]);
    i = end;
  }
}

void TextPrinter::value_name(std::string_view name) { put('%'), plain_or_quoted<is_word_char>(name); }

void TextPrinter::words(const std::vector<StrId>& list) {
  put('[');
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) put(", ");
    word(list[i]);
  }
  put(']');
}

void TextPrinter::source(SourceId id) {
  if (!id) return put('-');
  const Source& s = pool_.sources[id];
  if (s.file) append_quoted(text_of(s.file), &out_);
  else put('?');
  put(':'), number(s.line);
  if (s.function) put(' '), word(s.function);
}

}  // namespace sg::text

namespace sg {

std::string print_text(const Job& job) { return text::TextPrinter(job).job(); }

}  // namespace sg
