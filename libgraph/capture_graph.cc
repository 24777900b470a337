#include <algorithm>

#include "libgraph/capture_read.h"
#include "libgraph/names.h"
#include "libgraph/nearest.h"

namespace sg {
namespace {

constexpr std::string_view kGetitem = "python.getitem";

// How many results a file may claim through getitems of nodes without a type: some a node of the file, and a few.
constexpr size_t kUntypedResultsPerNode = 16;
constexpr size_t kUntypedResults = 4096;

using simdjson::dom::element;

// Calls fn(name) for each {"ref": name} inside an argument. The DOM's own depth limit bounds the recursion.
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

// The reference of a getitem with a constant index: {"ref": parent}, index.
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

class GraphReader : public NameScope {
 public:
  GraphReader(ImportContext* context, const RankCapture& capture, const NestedIndex& nested, const Json& json,
              uint32_t* next_stream, Program* program, Graph* graph)
      : context_(context), capture_(capture), nested_(nested), json_(json), next_stream_(next_stream),
        program_(program), graph_(graph), nodes_place_(JsonPlace::at_key(json.place, "nodes")) {}

  Status read() {
    SG_TRY(list("inputs", [&](size_t i, const Json& item) { return read_input(i, item); }));
    reserve();
    SG_TRY(list("nodes", [&](size_t i, const Json& item) { return index_node(i, item); }));
    for (size_t i = 0; i < records_.size(); ++i) SG_TRY(fold_getitem(i));
    mark_used();
    for (current_ = 0; current_ < records_.size(); ++current_)
      if (!records_[current_].is_folded()) SG_TRY(build_node(current_));
    link_forward();
    return list("outputs", [&](size_t, const Json& item) { return read_output(item); });
  }

  Result<Arg> resolve(const Json& at, std::string_view name) override {
    SG_ASSIGN(Named named, find(at, name));
    if (named.is_input) return Arg::value(graph_->inputs()[named.index].value);
    const NodeRecord& record = records_[named.index];
    if (named.index >= current_) return forward_reference(at, named.index);
    const Node& node = graph_->node(record.node);
    if (record.is_folded()) return Arg::value(node.result(record.result));
    if (!node.is_tuple && node.result_count == 0) return at.error("`" + std::string(name) + "` has no result");
    if (!node.is_tuple) return Arg::value(node.result(0));
    ArgList all;
    for (uint32_t i = 0; i < node.result_count; ++i) all.push_back(Arg::value(node.result(i)));
    return Arg::list(std::move(all));
  }

  Result<NestedId> nested(const Json& at, std::string_view name) override {
    if (const NestedId* id = nested_.find(name)) return *id;
    return at.error("the capture has no nested graph `" + std::string(name) + "`");
  }

  Result<GroupId> group(const Json& at, std::string_view name) override {
    const uint32_t* index = capture_.group_index.find(name);
    if (!index) return unknown_group(at, name);
    const RankGroup& group = capture_.groups[*index];
    if (group.holds_rank) return group.family;
    return at.error("the group `" + std::string(name) + "` does not hold rank " + std::to_string(capture_.rank));
  }

 private:
  static constexpr uint32_t kNoRecord = 0xFFFFFFFFu;
  struct Named {
    bool is_input;
    uint32_t index;
  };
  struct Numbered {
    uint64_t seq;
    uint32_t record;
  };

  // --- the file's lists and names ---

  template <class Fn>
  Status list(std::string_view key, const Fn& fn) {
    element items;
    if (!json_.is_object() || json_.element[key].get(items))
      return json_.error("there is no `" + std::string(key) + "`");
    JsonPlace place = JsonPlace::at_key(json_.place, key);
    return for_each_item({items, &place, json_.text}, fn);
  }

  void reserve() {
    simdjson::dom::array nodes;
    if (!json_.is_object() || json_.element["nodes"].get(nodes)) return;
    records_.reserve(nodes.size());
    names_.reserve(nodes.size() + graph_->inputs().size());
    numbered_.reserve(nodes.size());
    first_of_number_.reserve(nodes.size());
  }

  JsonPlace place_of_node(size_t i) const { return JsonPlace::at_index(&nodes_place_, i); }

  Status declare(const Json& at, std::string_view name, bool is_input, size_t index) {
    if (name.empty()) return at.error("the name is empty");
    auto [owner, is_new] = names_.try_emplace(name, Named{is_input, static_cast<uint32_t>(index)});
    if (is_new) return ok_status();
    return at.error("the name `" + std::string(name) + "` is taken by " + print(*owner));
  }

  std::string print(Named named) const {
    JsonPlace list = JsonPlace::at_key(json_.place, named.is_input ? "inputs" : "nodes");
    JsonPlace place = JsonPlace::at_index(&list, named.index);
    return print_place(&place);
  }

  Result<Named> find(const Json& at, std::string_view name) const {
    if (const Named* named = names_.find(name)) return *named;
    Nearest nearest(name);
    if (names_.size() < 100000)
      for (const Input& input : graph_->inputs()) nearest.offer(graph_->name(input.value));
    if (records_.size() < 100000)
      for (const NodeRecord& record : records_) nearest.offer(record.name);
    return at.error("no node or input is called `" + std::string(name) + "`", nearest.hint());
  }

  Error forward_reference(const Json& at, uint32_t index) const {
    const NodeRecord& record = records_[index];
    JsonPlace place = place_of_node(index);
    std::string message = "`" + std::string(record.name) + "` is used before it is defined, at " + print_place(&place);
    if (auto offset = offset_of(at.text->json(), &place)) message += " (byte " + std::to_string(*offset) + ")";
    return at.error(std::move(message), "nodes stand in the order in which they run");
  }

  Error unknown_group(const Json& at, std::string_view name) const {
    std::string known;
    for (size_t i = 0; i < capture_.groups.size() && i < 8; ++i)
      known += (i == 0 ? "" : ", ") + std::string(capture_.groups[i].name);
    return at.error("the capture declares no group `" + std::string(name) + "`",
                    known.empty() ? "add it to `groups`: {name, axis, ranks}" : "the groups are: " + known);
  }

  // --- inputs ---

  Status read_input(size_t index, const Json& json) {
    Input input;
    Extras extras;
    std::string_view name;
    TypeId type;
    bool is_typed = false;
    SG_TRY(for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
      if (key == "name") {
        SG_ASSIGN(name, value.string());
        return declare(value, name, true, index);
      }
      if (key == "type") {
        SG_ASSIGN(type, read_type(context_, value, &extras, json.place));
        is_typed = true;
        return ok_status();
      }
      if (value.is_null()) return ok_status();
      if (key == "kind") return read_input_kind(value, &input.kind);
      return read_input_field(key, value, &input, &extras);
    }));
    if (name.empty()) return json.error("the input has no `name`");
    if (!is_typed) return json.error("the input has no `type`");
    input.extra = extras.take(&context_->pool());
    if (input.kind == InputKind::opaque) {
      if (input.of) opaque_inputs_.try_emplace(context_->pool().strings[input.of], index);
    } else if (input.fqn) {
      named_inputs_.try_emplace(context_->pool().strings[input.fqn], index);
    }
    graph_->add_input(name, type, std::move(input));
    return ok_status();
  }

  Status read_input_kind(const Json& json, InputKind* kind) {
    static constexpr std::pair<std::string_view, InputKind> kKinds[] = {
        {"input", InputKind::user}, {"parameter", InputKind::parameter}, {"buffer", InputKind::buffer},
        {"constant", InputKind::constant}, {"opaque", InputKind::opaque}, {"tangent", InputKind::tangent},
        {"optimizer_state", InputKind::optimizer_state}};
    SG_ASSIGN(std::string_view word, json.string());
    for (const auto& [name, k] : kKinds)
      if (name == word) return *kind = k, ok_status();
    return json.error("unknown input kind `" + std::string(word) + "`",
                      "the kinds are input, parameter, buffer, constant, opaque, tangent and optimizer_state");
  }

  Status read_input_field(std::string_view key, const Json& value, Input* input, Extras* extras) {
    SG_ASSIGN(bool is_sharding, read_sharding(context_, key, value, &input->sharding));
    if (is_sharding) return ok_status();
    StrId* text = key == "fqn"      ? &input->fqn
                  : key == "of"     ? &input->of
                  : key == "attr"   ? &input->attribute
                  : key == "digest" ? &input->digest
                                    : nullptr;
    if (text == nullptr) {
      context_->tally.unknown_key("inputs", key, value);
      extras->add(std::string(key), canonical_json(value.element));
      return ok_status();
    }
    SG_ASSIGN(std::string_view s, value.string());
    *text = context_->str(s);
    return ok_status();
  }

  // --- nodes: what must be known before the first is built ---

  Status index_node(size_t index, const Json& json) {
    NodeRecord& record = records_.emplace_back();
    record.object = json.element;
    size_t expected = 0;                       // keys keep their order from node to node
    SG_TRY(for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
      size_t f = 0;
      for (; f < kNodeFieldCount && kNodeKeys[(expected + f) % kNodeFieldCount] != key; ++f) {}
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
    note_forward_number(record, index);
    return ok_status();
  }

  void note_forward_number(const NodeRecord& record, size_t index) {
    std::string_view phase;
    bool is_backward = record.has(NodeField::phase) && !record.field(NodeField::phase).get(phase) && phase != "forward";
    auto seq = number_of(record);
    if (is_backward || !seq || first_of_number(*seq) != kNoRecord) return;
    first_of_number_.insert(hash_of_number(*seq), static_cast<uint32_t>(numbered_.size()));
    numbered_.push_back({*seq, static_cast<uint32_t>(index)});
  }

  // The first forward record of that number.
  uint32_t first_of_number(uint64_t seq) const {
    uint32_t i = first_of_number_.find(hash_of_number(seq), [&](uint32_t k) { return numbered_[k].seq == seq; });
    return i == FlatIndex::kNone ? kNoRecord : numbered_[i].record;
  }

  // The number that links forward and backward nodes. PyTorch counts in 64 bits without sign, and means none by all ones.
  static std::optional<uint64_t> number_of(const NodeRecord& record) {
    uint64_t seq = 0;
    if (!record.has(NodeField::seq) || record.field(NodeField::seq).get(seq) || seq == UINT64_MAX) return std::nullopt;
    return seq;
  }

  Status fold_getitem(size_t index) {
    NodeRecord& record = records_[index];
    auto args = getitem_args(record);
    if (!args) return ok_status();
    const Named* named = names_.find(args->parent);
    if (!named || named->is_input || named->index >= index) return ok_status();   // said later
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

  Status claim_untyped_result(size_t index, int64_t result, NodeRecord* parent) {
    size_t limit = kUntypedResults + kUntypedResultsPerNode * records_.size();
    if (static_cast<uint64_t>(result) >= limit - untyped_results_) return bad_index(index, result, *parent);
    parent->is_tuple = true;
    if (result < parent->result_count) return ok_status();
    untyped_results_ += static_cast<size_t>(result) + 1 - parent->result_count;
    parent->result_count = static_cast<uint32_t>(result) + 1;
    return ok_status();
  }

  Error bad_index(size_t index, int64_t result, const NodeRecord& parent) const {
    JsonPlace node = place_of_node(index), args = JsonPlace::at_key(&node, "args"), at = JsonPlace::at_index(&args, 1);
    std::string message = "`" + std::string(parent.name) + "` has no result " + std::to_string(result);
    if (parent.has(NodeField::type)) message += "; it has " + std::to_string(parent.result_count);
    return Json{{}, &at, json_.text}.error(std::move(message));
  }

  static bool returns_nothing(const OpInfo* info) {
    return info != nullptr && info->results.empty() && !info->returns_list;
  }

  // Whether a node without a type has a result at all is told by its users, unless the op table knows.
  void mark_used() {
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

  // --- nodes ---

  Status build_node(size_t index) {
    NodeRecord& record = records_[index];
    JsonPlace place = place_of_node(index);
    PlacedNode node{&record, &place, json_.text};
    Extras extras;
    NodeSpec spec;
    spec.op = context_->pool().op(record.op);
    spec.label = record.name;
    const OpInfo* info = context_->pool().ops[spec.op].info;
    if (info == nullptr) context_->tally.unknown_op(record.op, {record.object, &place, json_.text});
    SG_ASSIGN(spec.args, read_args(context_, node, info, this, &extras));
    if (record.is_tuple && !record.has(NodeField::type)) count_split_results(info, spec.args, &record);
    SG_TRY(read_results(node, info, &spec, &extras));
    std::vector<std::string> default_names = name_results(record, &spec);
    SG_TRY(read_context(node, &spec, &extras));
    NodeMeta meta;
    SG_TRY(read_meta(context_, node, &meta, &extras));
    SG_TRY(read_folded(node, &meta, &extras));
    if (record.has_unknown_keys) SG_TRY(keep_unknown_keys({record.object, &place, json_.text}, "", &extras));
    if (!extras.empty()) meta.extra = extras.take(&context_->pool());
    spec.meta = context_->pool().metas.intern(std::move(meta));
    record.node = graph_->append(spec);
    for (uint32_t g : record.getitems) records_[g].node = record.node;
    if (info != nullptr && draws_random(*graph_, record.node)) number_stream(record.node);
    return node.with(NodeField::binds, [&](const Json& json) { return read_binds(json, record.node); });
  }

  // Getitems show only the results that somebody takes; the list of sizes to split into shows all.
  static void count_split_results(const OpInfo* info, const std::vector<Arg>& args, NodeRecord* record) {
    int index = info == nullptr || !info->returns_list ? -1 : info->param_index("split_sizes");
    if (index < 0 || static_cast<size_t>(index) >= args.size() || !args[static_cast<size_t>(index)].is(ArgKind::list)) return;
    size_t count = args[static_cast<size_t>(index)].items().size();
    record->result_count = std::max(record->result_count, static_cast<uint32_t>(count));
  }

  // The result types, and whether the op returns a tuple.
  Status read_results(const PlacedNode& node, const OpInfo* info, NodeSpec* spec, Extras* extras) {
    const NodeRecord& record = *node.record;
    spec->is_tuple = record.is_tuple;
    if (record.has(NodeField::type)) {
      SG_TRY(node.with(NodeField::type, [&](const Json& json) -> Status {
        auto add = [&](const Json& type) -> Status {
          SG_ASSIGN(TypeId id, read_type(context_, type, extras, node.place));
          spec->result_types.push_back(id);
          return ok_status();
        };
        return record.is_tuple ? for_each_item(json, [&](size_t, const Json& item) { return add(item); }) : add(json);
      }));
    } else if (record.is_tuple) {
      spec->result_types.resize(record.result_count, Pool::kUnknownType);
    } else if (record.is_used || (info != nullptr && info->results.size() == 1 && !info->returns_list)) {
      spec->result_types.push_back(Pool::kUnknownType);
    }
    for (uint32_t g : record.getitems) SG_TRY(take_getitem_type(g, &spec->result_types[records_[g].result], extras));
    return ok_status();
  }

  // The parent's word counts; the getitem's fills a gap.
  Status take_getitem_type(uint32_t index, TypeId* type, Extras* extras) {
    JsonPlace place = place_of_node(index);
    PlacedNode getitem{&records_[index], &place, json_.text};
    return getitem.with(NodeField::type, [&](const Json& json) -> Status {
      SG_ASSIGN(TypeId own, read_type(context_, json, extras, &place));
      TypeKind kind = context_->pool().types[*type].kind;
      if (kind == TypeKind::unknown || kind == TypeKind::none) *type = own;
      else if (own != *type) context_->tally.type_conflict(json);
      return ok_status();
    });
  }

  // Results are called like the getitems that take them out; the others `label.i`, past all names of the file, which
  // are the first to have a right to theirs.
  std::vector<std::string> name_results(const NodeRecord& record, NodeSpec* spec) {
    std::vector<std::string> storage;
    if (!record.is_tuple) return storage;
    spec->names.resize(spec->result_types.size());
    for (uint32_t g : record.getitems)
      if (spec->names[records_[g].result].empty()) spec->names[records_[g].result] = records_[g].name;
    storage.resize(spec->names.size());
    for (size_t i = 0; i < storage.size(); ++i) {
      if (!spec->names[i].empty()) continue;
      std::string base = std::string(record.name) + "." + std::to_string(i);
      storage[i] = base;
      for (uint32_t suffix = 1; names_.find(storage[i]); ++suffix) storage[i] = base + "_" + std::to_string(suffix);
      spec->names[i] = storage[i];
    }
    return storage;
  }

  // module, phase, source, and a number that links to no forward node.
  Status read_context(const PlacedNode& node, NodeSpec* spec, Extras* extras) {
    SG_TRY(node.with(NodeField::module, [&](const Json& json) -> Status {
      SG_ASSIGN(std::string_view module, json.string());
      if (!module.empty()) spec->module = context_->str(module);
      return ok_status();
    }));
    SG_TRY(node.with(NodeField::phase, [&](const Json& json) -> Status {
      SG_ASSIGN(std::string_view word, json.string());
      auto phase = enum_named<Phase>(word);
      if (!phase) return json.error("unknown phase `" + std::string(word) + "`", nearest_hint(word, names_of<Phase>()));
      spec->phase = *phase;
      return ok_status();
    }));
    SG_TRY(node.with(NodeField::source, [&](const Json& json) -> Status {
      SG_ASSIGN(Source source, read_source(context_, json, "source", extras));
      spec->source = context_->pool().sources.intern(source);
      return ok_status();
    }));
    return node.with(NodeField::seq, [&](const Json& json) -> Status {
      if (!json.is_integer() && !json.element.is_uint64()) SG_TRY(json.integer());
      auto seq = number_of(*node.record);
      bool has_forward = seq && first_of_number(*seq) != kNoRecord;
      if (spec->phase == Phase::backward && !has_forward) extras->add("seq", canonical_json(json.element));
      return ok_status();
    });
  }

  void number_stream(NodeId n) {
    NodeMeta meta = graph_->meta(n);
    meta.random.stream = ++*next_stream_;
    meta.random.rank_local = capture_.world > 1;
    graph_->set_meta(n, std::move(meta));
  }

  // Kept only where the rule of the op table says something else.
  Status read_binds(const Json& json, NodeId n) {
    std::vector<StrId> symbols;
    SG_TRY(for_each_item(json, [&](size_t, const Json& item) -> Status {
      SG_ASSIGN(std::string_view name, item.string());
      symbols.push_back(context_->str(name));
      return ok_status();
    }));
    if (symbols == default_binds(*program_, *graph_, n)) return ok_status();
    NodeMeta meta = graph_->meta(n);
    meta.binds = std::move(symbols);
    graph_->set_meta(n, std::move(meta));
    return ok_status();
  }

  // What the folded getitems say beyond their name.
  Status read_folded(const PlacedNode& parent, NodeMeta* meta, Extras* extras) {
    const ResultChunk own{meta->chunk.index, meta->chunk.original};
    std::vector<ResultChunk> chunks(parent.record->result_count, own);
    std::vector<bool> is_named(parent.record->result_count);
    bool differs = false;
    std::string same;
    for (uint32_t g : parent.record->getitems) {
      const NodeRecord& getitem = records_[g];
      JsonPlace place = place_of_node(g);
      ResultChunk chunk = own;
      SG_TRY(read_getitem_meta(context_, {&getitem, &place, json_.text}, parent, &chunk, extras));
      if (getitem.has_unknown_keys)
        SG_TRY(keep_unknown_keys({getitem.object, &place, json_.text}, "getitem." + std::string(getitem.name) + ".", extras));
      if (is_named[getitem.result])            // a second getitem of the same result: only its name is lost
        extras->add("getitem." + std::string(getitem.name), std::to_string(getitem.result));
      else
        chunks[getitem.result] = chunk;
      is_named[getitem.result] = true;
      differs = differs || !(chunk == own);
    }
    if (differs) meta->result_chunks = std::move(chunks);
    return ok_status();
  }

  Status keep_unknown_keys(const Json& json, const std::string& prefix, Extras* extras) {
    return for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
      if (std::find(std::begin(kNodeKeys), std::end(kNodeKeys), key) != std::end(kNodeKeys)) return ok_status();
      context_->tally.unknown_key("nodes", key, value);
      extras->add(prefix + std::string(key), canonical_json(value.element));
      return ok_status();
    });
  }

  void link_forward() {
    for (const NodeRecord& record : records_) {
      if (record.is_folded() || graph_->node(record.node).phase != Phase::backward) continue;
      auto seq = number_of(record);
      if (!seq) continue;
      uint32_t first = first_of_number(*seq);
      if (first != kNoRecord) graph_->set_forward(record.node, records_[first].node);
    }
  }

  // --- outputs ---

  Status read_output(const Json& json) {
    Output output;
    Extras extras;
    if (json.is_null()) {
      output.kind = OutputKind::none;
    } else if (element ref; json.is_object() && !json.element["ref"].get(ref)) {
      SG_TRY(read_output_value(json, &output));
    } else {
      std::string_view of;
      bool has_kind = false;
      SG_TRY(for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
        if (value.is_null()) return ok_status();
        if (key == "value") return read_output_value(value, &output);
        if (key == "kind") return has_kind = true, read_output_kind(value, &output, &extras);
        return read_output_field(key, value, &of, &output, &extras);
      }));
      if (!has_kind && !output.value) output.kind = OutputKind::none;
      if (of.data() != nullptr) resolve_of(of, &output);
    }
    output.extra = extras.take(&context_->pool());
    graph_->add_output(std::move(output));
    return ok_status();
  }

  Status read_output_value(const Json& json, Output* output) {
    element ref;
    if (!json.is_object() || json.element["ref"].get(ref))
      return json.error("expected {\"ref\": name} or null, not " + std::string(json_kind(json.element)));
    JsonPlace place = JsonPlace::at_key(json.place, "ref");
    Json at{ref, &place, json.text};
    SG_ASSIGN(std::string_view name, at.string());
    SG_ASSIGN(Arg arg, resolve(at, name));
    if (!arg.is(ArgKind::value))
      return at.error("`" + std::string(name) + "` has several results; an output is one of them");
    output->value = arg.as_value();
    return ok_status();
  }

  Status read_output_kind(const Json& json, Output* output, Extras* extras) {
    static constexpr std::pair<std::string_view, OutputKind> kKinds[] = {
        {"loss", OutputKind::loss}, {"gradient", OutputKind::gradient}, {"buffer", OutputKind::buffer},
        {"opaque", OutputKind::opaque}, {"none", OutputKind::none}, {"output", OutputKind::other},
        {"other", OutputKind::other}};
    SG_ASSIGN(std::string_view word, json.string());
    for (const auto& [name, kind] : kKinds)
      if (name == word) return output->kind = kind, ok_status();
    context_->tally.kept_raw("outputs.kind", json);
    extras->add("kind", canonical_json(json.element));
    return ok_status();
  }

  Status read_output_field(std::string_view key, const Json& value, std::string_view* of, Output* output,
                           Extras* extras) {
    SG_ASSIGN(bool is_sharding, read_sharding(context_, key, value, &output->sharding));
    if (is_sharding) return ok_status();
    if (key == "of") {
      SG_ASSIGN(*of, value.string());
    } else if (key == "attr") {
      SG_ASSIGN(std::string_view attribute, value.string());
      output->attribute = context_->str(attribute);
    } else {
      context_->tally.unknown_key("outputs", key, value);
      extras->add(std::string(key), canonical_json(value.element));
    }
    return ok_status();
  }

  void resolve_of(std::string_view of, Output* output) {
    const auto& index = output->kind == OutputKind::opaque ? opaque_inputs_ : named_inputs_;
    const size_t* input = index.find(of);
    if (input) output->of = graph_->inputs()[*input].value;
    else output->of_name = context_->str(of);
  }

  ImportContext* context_;
  const RankCapture& capture_;
  const NestedIndex& nested_;
  const Json& json_;
  uint32_t* next_stream_;
  Program* program_;
  Graph* graph_;
  JsonPlace nodes_place_;
  std::vector<NodeRecord> records_;
  FlatTextMap<Named> names_;
  FlatTextMap<size_t> named_inputs_, opaque_inputs_;     // by fqn; by what they describe
  std::vector<Numbered> numbered_;                       // the first forward record of each number
  FlatIndex first_of_number_;                            // seq -> index into numbered_
  size_t untyped_results_ = 0;
  size_t current_ = 0;                         // the record being built: what comes later is not defined yet
};

}  // namespace

Status read_graph(ImportContext* context, const RankCapture& capture, const NestedIndex& nested, const Json& json,
                  uint32_t* next_stream, Program* program, Graph* graph) {
  return GraphReader(context, capture, nested, json, next_stream, program, graph).read();
}

}  // namespace sg
