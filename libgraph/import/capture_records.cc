// A first pass over all nodes before any is built: names, numbers of results, getitems.
#include "libgraph/composite/composite_forms.h"
#include "libgraph/import/capture_graph.h"

namespace sg {
namespace {

using simdjson::dom::element;

constexpr std::string_view kGetitem = "python.getitem";

// Limits the results a file may claim through getitems of untyped nodes: some per node of the file, plus a few.
constexpr size_t kUntypedResultsPerNode = 16;
constexpr size_t kUntypedResults = 4096;

// Calls fn(name) for each {"ref": name} inside an argument. The DOM's depth limit bounds the recursion.
template <class Fn>
void for_each_ref(element e, const Fn& fn) {
  simdjson::dom::array list;
  simdjson::dom::object fields;
  if (!e.get(list)) {
    for (element item : list) for_each_ref(item, fn);
  } else if (!e.get(fields)) {
    for (auto field : fields) {
      std::string_view name;
      if (field.key == "ref" && !field.value.get(name)) fn(name);
      else for_each_ref(field.value, fn);
    }
  }
}

// The arguments of a getitem with a constant index: {"ref": parent}, index.
struct GetitemArgs {
  std::string_view parent;
  int64_t index;
};
std::optional<GetitemArgs> getitem_args(const NodeRecord& record) {
  simdjson::dom::array args;
  simdjson::dom::object kwargs;
  if (record.op != kGetitem || !record.has(NodeField::args) || record.field(NodeField::args).get(args)) return {};
  if (args.size() != 2) return {};
  if (record.has(NodeField::kwargs) && (record.field(NodeField::kwargs).get(kwargs) || kwargs.size() != 0)) return {};
  GetitemArgs out{};
  element index = args.at(1).value_unsafe();
  if (args.at(0).value_unsafe()["ref"].get(out.parent)) return {};
  if (index.type() != simdjson::dom::element_type::INT64 || index.get(out.index)) return {};
  return out;
}

}  // namespace

Status GraphReader::index_node(size_t index, const Json& json) {
  NodeRecord& record = records_.emplace_back();
  record.object = json.element;
  size_t expected = 0;  // keys have the same order in most nodes
  SG_TRY(for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
    size_t f = 0;
    for (; f < kNodeFieldCount && kNodeKeys[(expected + f) % kNodeFieldCount] != key; ++f) {
    }
    if (f == kNodeFieldCount) return record.has_unknown_keys = true, ok_status();
    f = (expected + f) % kNodeFieldCount;
    expected = f + 1;
    if (value.is_null()) return ok_status();
    if ((record.present >> f & 1) != 0) return value.error("the key occurs twice");
    record.present |= 1u << f;
    record.fields[f] = value.element;
    if (f == static_cast<size_t>(NodeField::op)) {
      SG_ASSIGN(record.op, value.string());
    } else if (f == static_cast<size_t>(NodeField::name)) {
      SG_ASSIGN(record.name, value.string());
      return declare(value, record.name, false, index);
    }
    return ok_status();
  }));
  if (record.name.empty()) return json.error("the node has no `name`");
  if (record.op.empty()) return json.error("node `" + std::string(record.name) + "` has no `op`");
  if (!record.has(NodeField::args)) return json.error("node `" + std::string(record.name) + "` has no `args`");
  simdjson::dom::array types;
  if (record.has(NodeField::type) && !record.field(NodeField::type).get(types)) {
    record.is_tuple = true;
    record.result_count = 0;
    for (element unused : types) (void)unused, ++record.result_count;
  }
  return ok_status();
}

// Links each record that has a sequence number to the first forward record with that number, if that is not behind it.
void GraphReader::find_first_of_numbers() {
  struct First {
    uint64_t seq;
    uint32_t record;
  };
  std::vector<First> firsts;
  FlatIndex index;
  firsts.reserve(records_.size());
  index.reserve(records_.size());
  // Neighbouring numbers get neighbouring slots, since the numbers of a step are consecutive.
  auto hash = [](uint64_t seq) { return hash_of_number(seq >> 3) << 3 | (seq & 7); };
  auto find = [&](uint64_t seq) { return index.find(hash(seq), [&](uint32_t i) { return firsts[i].seq == seq; }); };
  auto is_backward = [](const NodeRecord& record) {
    std::string_view phase;
    return record.has(NodeField::phase) && !record.field(NodeField::phase).get(phase) && phase != "forward";
  };
  for (uint32_t i = 0; i < records_.size(); ++i) {
    auto seq = number_of(records_[i]);
    if (!seq || is_backward(records_[i]) || is_profiler_mark(records_[i].op) || find(*seq) != FlatIndex::kNone)
      continue;
    index.insert(hash(*seq), static_cast<uint32_t>(firsts.size()));
    firsts.push_back({*seq, i});
  }
  for (uint32_t i = 0; i < records_.size(); ++i) {
    auto seq = number_of(records_[i]);
    uint32_t first = seq ? find(*seq) : FlatIndex::kNone;
    if (first != FlatIndex::kNone && firsts[first].record <= i) records_[i].forward = firsts[first].record;
  }
}

// The sequence number that links forward and backward nodes. PyTorch counts in unsigned 64 bits; all ones means none.
std::optional<uint64_t> GraphReader::number_of(const NodeRecord& record) {
  uint64_t seq = 0;
  if (!record.has(NodeField::seq) || record.field(NodeField::seq).get(seq) || seq == UINT64_MAX) return std::nullopt;
  return seq;
}

Status GraphReader::fold_getitem(size_t index) {
  NodeRecord& record = records_[index];
  auto args = getitem_args(record);
  if (!args) return ok_status();
  const Named* named = names_.find(args->parent);
  if (!named || named->is_input || named->index >= index) return ok_status();  // reported later
  NodeRecord& parent = records_[named->index];
  if (parent.is_folded()) return ok_status();
  if (parent.has(NodeField::type)) {
    if (!parent.is_tuple) return ok_status();
    int64_t count = parent.result_count;
    int64_t result = args->index < 0 && args->index >= -count ? args->index + count : args->index;
    if (result < 0 || result >= count) return bad_index(index, args->index, parent);
    record.result = static_cast<uint32_t>(result);
  } else {
    const OpInfo* info = find_op(parent.op);
    if (args->index < 0 || (info != nullptr && !info->returns_list && info->results.size() < 2)) return ok_status();
    SG_TRY(claim_untyped_result(index, args->index, &parent));
    record.result = static_cast<uint32_t>(args->index);
  }
  record.folded_into = named->index;
  parent.getitems.push_back(static_cast<uint32_t>(index));
  return ok_status();
}

Status GraphReader::claim_untyped_result(size_t index, int64_t result, NodeRecord* parent) {
  size_t limit = kUntypedResults + kUntypedResultsPerNode * records_.size();
  if (static_cast<uint64_t>(result) >= limit - untyped_results_) return bad_index(index, result, *parent);
  parent->is_tuple = true;
  if (result < parent->result_count) return ok_status();
  untyped_results_ += static_cast<size_t>(result) + 1 - parent->result_count;
  parent->result_count = static_cast<uint32_t>(result) + 1;
  return ok_status();
}

Error GraphReader::bad_index(size_t index, int64_t result, const NodeRecord& parent) const {
  JsonPlace node = place_of_node(index), args = JsonPlace::at_key(&node, "args"), at = JsonPlace::at_index(&args, 1);
  std::string message = "`" + std::string(parent.name) + "` has no result " + std::to_string(result);
  if (parent.has(NodeField::type)) message += "; it has " + std::to_string(parent.result_count);
  return Json{{}, &at, json_.text}.error(std::move(message));
}

bool GraphReader::returns_nothing(const OpInfo* info) {
  return info != nullptr && info->results.empty() && !info->returns_list;
}

// Marks untyped nodes that have a user: unless the op table knows, only users tell whether such a node has a result.
void GraphReader::mark_used() {
  auto is_open = [](const NodeRecord& r) {
    return !r.has(NodeField::type) && !r.is_folded() && !r.is_tuple && !returns_nothing(find_op(r.op));
  };
  if (std::none_of(records_.begin(), records_.end(), is_open)) return;
  auto mark = [&](std::string_view name) {
    const Named* named = names_.find(name);
    if (named && !named->is_input && is_open(records_[named->index])) records_[named->index].is_used = true;
  };
  for (const NodeRecord& r : records_) {
    for_each_ref(r.field(NodeField::args), mark);
    if (r.has(NodeField::kwargs)) for_each_ref(r.field(NodeField::kwargs), mark);
  }
  element outputs;
  if (!json_.element["outputs"].get(outputs)) for_each_ref(outputs, mark);
}

}  // namespace sg
