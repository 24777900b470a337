// Turns what a trace records about symbols into declarations and guards.
#include <charconv>
#include <iterator>
#include <unordered_map>

#include "libgraph/import/fx_lower.h"
#include "libgraph/import/sympy_expr.h"

namespace sg {
namespace {

constexpr size_t kMaxGuards = 4096;  // steps have hundreds

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// "[2, int_oo]"
void read_range(std::string_view text, Symbol* symbol) {
  size_t comma = text.find(", ");
  if (text.size() < 2 || text.front() != '[' || text.back() != ']' || comma == std::string_view::npos) return;
  symbol->min = whole_number(text.substr(1, comma - 1));
  symbol->max = whole_number(text.substr(comma + 2, text.size() - comma - 3));
}

// "L['x'].size()[0]" becomes "x.size()[0]".
std::string plain_source(std::string_view text) {
  size_t end = text.find("']");
  if (!text.starts_with("L['") || end == std::string_view::npos) return std::string(text);
  return std::string(text.substr(3, end - 3)) + std::string(text.substr(end + 2));
}

// PyTorch names symbols of floats zf0. The graph holds a step's floats as numbers, so guards on them are dropped.
bool is_of_floats(std::string_view guard) { return guard.find("zf") != std::string_view::npos; }

// False: unreadable, or too many.
bool learn_guard(std::string_view text, Pool* pool, SourceProgram* program) {
  auto guards = parse_sympy_guards(pool, text);
  if (!guards.ok() || program->known_guards.size() + guards->size() > kMaxGuards) return false;
  for (const Guard& guard : *guards)
    if (pool->exprs.is_invalid(guard.left) || pool->exprs.is_invalid(guard.right)) return false;
  program->known_guards.insert(program->known_guards.end(), guards->begin(), guards->end());
  return true;
}

// Names inputs that are no parameters or buffers, as name_from_dynamo does.
std::string name_of_number(std::string_view source) {
  std::string name = dynamo_name(source);
  while (name.ends_with('_')) name.pop_back();
  return name.starts_with("L_") ? name.substr(2) : name;
}

// The node `name` = aten.full([], number).
SourceNode number_node(const SourceInput& input, double number, Pool* pool) {
  const Type& type = pool->types[input.type];
  SourceNode node;
  node.place = input.place;
  node.name = input.name;
  node.op = pool->str("aten.full.default");
  node.args.push_back(Arg::list({}));
  node.args.push_back(Arg::floating(number));
  node.args.push_back(std::move(Arg::dtype(type.dtype).set_key(pool->str("dtype"))));
  node.args.push_back(std::move(Arg::text(ArgKind::device, type.device).set_key(pool->str("device"))));
  node.results.shape = SourceResults::Shape::one;
  node.results.types = {input.type};
  return node;
}

}  // namespace

void learn_fx_sizes(const std::vector<FxSize>& sizes, Pool* pool, SourceProgram* program, FxGaps* gaps) {
  for (const FxSize& size : sizes) {
    if (size.is_tensor()) continue;
    if (size.is_guard) {
      if (!is_of_floats(size.text) && !learn_guard(size.text, pool, program)) ++gaps->unread_guards;
      continue;
    }
    Symbol symbol;
    symbol.name = pool->str(size.text);
    symbol.hint = whole_number(size.hint);
    if (!symbol.hint) continue;
    read_range(size.range, &symbol);
    bool fits = symbol.min.value_or(*symbol.hint) <= *symbol.hint && *symbol.hint <= symbol.max.value_or(*symbol.hint);
    if (!fits) continue;
    symbol.source = size.source.empty() ? StrId() : pool->str(plain_source(size.source));
    program->known_symbols.push_back(symbol);
  }
}

void put_numbers_in(const std::vector<FxSize>& sizes, Pool* pool, SourceProgram* program) {
  std::unordered_map<std::string, double> numbers;
  for (const FxSize& size : sizes) {
    double number = 0;
    const char* end = size.hint.data() + size.hint.size();
    const auto [stop, problem] = std::from_chars(size.hint.data(), end, number);
    const bool is_number = problem == std::errc() && stop == end;
    if (!size.is_guard && size.text.starts_with("zf") && is_number)
      numbers.emplace(name_of_number(size.source), number);
  }
  if (numbers.empty()) return;
  SourceGraph& graph = program->graph;
  std::vector<SourceNode> nodes;
  std::erase_if(graph.inputs, [&](const SourceInput& input) {
    const Type& type = pool->types[input.type];
    bool is_scalar = type.kind == TypeKind::tensor && type.dtype == DType::f64 && type.shape.empty();
    if (!is_scalar || input.input.kind != InputKind::user || !input.input.fqn) return false;
    auto number = numbers.find(std::string(pool->strings.str(input.input.fqn)));
    if (number == numbers.end()) return false;
    for (SourceOutput& output : graph.outputs)
      if (output.of == input.name || output.of == input.input.fqn) output.of = StrId();
    nodes.push_back(number_node(input, number->second, pool));
    return true;
  });
  graph.nodes.insert(graph.nodes.begin(), std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.end()));
}

}  // namespace sg
