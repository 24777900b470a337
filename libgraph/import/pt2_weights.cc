// Weights and constants: raw storages, and a JSON list of the tensors in them.
#include <algorithm>
#include <set>

#include "libgraph/base/joined.h"
#include "libgraph/data/constant_data.h"
#include "libgraph/import/pt2_read.h"

namespace sg {
namespace {

// The sizes of a stored tensor, which must be numbers.
Result<std::vector<int64_t>> read_numbers(const Json& json) {
  std::vector<int64_t> out;
  SG_TRY(for_each_item(json, [&](size_t, const Json& item) {
    return need_field(item, "as_int", [&](const Json& value) -> Status {
      SG_ASSIGN(int64_t number, value.integer());
      out.push_back(number);
      return ok_status();
    });
  }));
  return out;
}

Status read_meta_of(const Json& meta, Pt2Payload* payload) {
  payload->has_meta = true;
  SG_TRY(need_field(meta, "dtype", [&](const Json& json) -> Status {
    SG_ASSIGN(payload->dtype, pt2_dtype(json));
    return ok_status();
  }));
  for (auto [key, out] : {std::pair("sizes", &payload->shape), std::pair("strides", &payload->stride)})
    SG_TRY(need_field(meta, key, [&, list = out](const Json& json) -> Status {
      SG_ASSIGN(*list, read_numbers(json));
      return ok_status();
    }));
  if (payload->shape.size() != payload->stride.size() || payload->shape.size() > TensorFile::kMaxRank)
    return meta.error("the sizes and strides are not those of a tensor");
  SG_TRY(with_field(meta, "layout", [&](const Json& json) -> Status {
    SG_ASSIGN(int64_t layout, json.integer());
    payload->is_strided = layout == 0 || pt2_layout(layout) == "strided";
    return ok_status();
  }));
  return need_field(meta, "storage_offset", [&](const Json& json) {
    return need_field(json, "as_int", [&](const Json& value) -> Status {
      SG_ASSIGN(payload->offset, value.integer());
      return ok_status();
    });
  });
}

// The number of storage elements a tensor spans; none if it overflows or starts before the storage.
std::optional<uint64_t> reach(const Pt2Payload& p) {
  int64_t last = p.offset;
  if (last < 0) return std::nullopt;
  bool is_empty = false;
  for (size_t d = 0; d < p.shape.size(); ++d) {
    int64_t step = 0;
    if (p.shape[d] < 0 || p.stride[d] < 0) return std::nullopt;
    is_empty = is_empty || p.shape[d] == 0;
    if (p.shape[d] == 0) continue;
    if (__builtin_mul_overflow(p.shape[d] - 1, p.stride[d], &step) || __builtin_add_overflow(last, step, &last))
      return std::nullopt;
  }
  if (is_empty) return 0;
  return last == INT64_MAX ? std::nullopt : std::optional(static_cast<uint64_t>(last) + 1);
}

constexpr uint64_t kMostRepeated = uint64_t{1} << 30;  // bytes that expanded tensors stand for beyond what is stored

class WeightReader {
 public:
  WeightReader(const ZipArchive& archive, const Pt2Payloads& payloads, Pt2Import* import, Diagnostics* notes)
      : archive_(archive),
        payloads_(payloads),
        import_(import),
        notes_(notes),
        storages_(std::make_shared<Storages>()) {}

  Status read() {
    Graph& graph = import_->job.programs[0]->graph;
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const Input& input = graph.inputs()[i];
      bool has_value =
          input.kind == InputKind::parameter || input.kind == InputKind::buffer || input.kind == InputKind::constant;
      if (has_value && input.fqn) SG_TRY(read_input(graph, i));
    }
    import_->owner = storages_;
    if (!missing_.empty())
      notes_->warning("no-values",
                      std::to_string(missing_count_) + " inputs have no values that could be read: " + missing_,
                      {archive_.name()}, "give them with sg-run --inputs, or make them up with --init");
    return ok_status();
  }

 private:
  using Storages = std::map<std::string, std::string>;
  Pool& pool() { return *import_->job.pool; }

  Status read_input(Graph& graph, size_t index) {
    const Input& input = graph.inputs()[index];
    std::string fqn = pool().strings.str(input.fqn);
    auto it = payloads_.find(fqn);
    std::string why;
    if (it == payloads_.end()) why = "not in the archive";
    else if (it->second.is_pickled) why = "pickled";
    else if (!it->second.has_meta || !it->second.is_strided) why = "not a plain tensor";
    else if (archive_.find(it->second.entry) == nullptr) why = "no entry " + it->second.entry;
    if (!why.empty()) return missing(fqn, why), ok_status();
    return add(graph, index, fqn, it->second);
  }

  void missing(const std::string& fqn, const std::string& why) {
    if (missing_count_++ < 8) missing_ += (missing_.empty() ? "" : ", ") + fqn + " (" + why + ")";
    else if (missing_count_ == 9) missing_ += ", ...";
  }

  Error bad(const Pt2Payload& payload, std::string message) {
    Error error{ErrorKind::unreadable, std::move(message), {archive_.name()}, {}};
    error.where.path = payload.entry;
    return error;
  }

  Status add(Graph& graph, size_t index, const std::string& fqn, const Pt2Payload& payload) {
    const Type& type = graph.type(graph.inputs()[index].value);
    auto is_size = [&](Expr e, int64_t n) { return pool().exprs.constant_value(e) == n; };
    if (type.kind != TypeKind::tensor || type.dtype != payload.dtype ||
        !std::equal(type.shape.begin(), type.shape.end(), payload.shape.begin(), payload.shape.end(), is_size))
      return bad(payload, "`" + fqn + "` has another element type or shape here than in the graph");
    auto [it, is_new] = storages_->try_emplace(payload.entry);
    if (is_new) {
      SG_ASSIGN(it->second, archive_.read(*archive_.find(payload.entry)));
    }
    const std::string& storage = it->second;
    auto elements = reach(payload);
    auto width = static_cast<uint64_t>(dtype_bytes(payload.dtype));
    if (!elements || *elements > storage.size() / width) {
      if (storage.empty()) return missing(fqn, "a fake tensor, without data"), ok_status();
      return bad(payload,
                 "`" + fqn + "` reaches beyond the " + std::to_string(storage.size()) + " bytes that are there");
    }
    SG_TRY(count_repeated(fqn, payload, *elements * width));
    TensorToWrite tensor{fqn, payload.dtype, payload.shape, payload.stride, nullptr};
    if (*elements != 0) tensor.data = storage.data() + static_cast<uint64_t>(payload.offset) * width;
    if (type.kind == TypeKind::tensor && graph.inputs()[index].kind == InputKind::constant)
      set_digest(graph, index, tensor);
    tensor.name = name_for(graph, index, fqn);
    import_->tensors.push_back(std::move(tensor));
    return ok_status();
  }

  // Axes of stride 0 make any number of elements of a few, each of which is written.
  Status count_repeated(const std::string& fqn, const Pt2Payload& payload, uint64_t held) {
    const std::optional<uint64_t> all = contiguous_bytes(payload.dtype, payload.shape);
    if (all && *all <= held) return ok_status();
    if (all && *all - held <= kMostRepeated - repeated_) return repeated_ += *all - held, ok_status();
    return bad(payload, "`" + fqn + "` repeats " + std::to_string(held) + " bytes to more than " +
                            std::to_string(kMostRepeated) + ", with others that do");
  }

  // The digest of the constant's bytes as a tensor file holds them.
  void set_digest(Graph& graph, size_t index, const TensorToWrite& tensor) {
    auto bytes = tensor_file_bytes({&tensor, 1});
    if (!bytes.ok()) return;
    auto file = TensorFile::parse(*bytes, "constant");
    if (!file.ok() || file->tensors().size() != 1) return;
    const StoredTensor& stored = file->tensors()[0];
    graph.mutable_input(index).digest =
        pool().str(constant_data({static_cast<const char*>(stored.data), stored.bytes}));
  }

  // When a tensor file is read, input names take precedence over FQNs: an FQN that equals an input's name would be
  // mistaken for it.
  std::string name_for(const Graph& graph, size_t index, const std::string& fqn) {
    if (graph.find_value(fqn).is_none() && used_.insert(fqn).second) return fqn;
    return std::string(graph.name(graph.inputs()[index].value));
  }

  const ZipArchive& archive_;
  const Pt2Payloads& payloads_;
  Pt2Import* import_;
  Diagnostics* notes_;
  std::shared_ptr<Storages> storages_;
  std::set<std::string> used_;
  std::string missing_;
  size_t missing_count_ = 0;
  uint64_t repeated_ = 0;
};

}  // namespace

Result<std::unique_ptr<CaptureText>> read_json_entry(const ZipArchive& archive, const std::string& entry) {
  const ZipEntry* found = archive.find(entry);
  if (found == nullptr) return Error{ErrorKind::unreadable, "the archive has no " + entry, {archive.name()}, {}};
  SG_ASSIGN(std::string json, archive.read(*found));
  quote_bare_numbers(&json);
  auto text = std::make_unique<CaptureText>(archive.name() + ":" + entry, std::move(json));
  SG_TRY(text->parse());
  return text;
}

Result<Pt2Payloads> read_payloads(const ZipArchive& archive, const Pt2Model& model) {
  Pt2Payloads out;
  for (const std::string& entry : model.configs) {
    SG_ASSIGN(std::unique_ptr<CaptureText> text, read_json_entry(archive, entry));
    std::string folder = entry.substr(0, entry.rfind('/') + 1);
    Json root{text->root(), nullptr, text.get()};
    SG_TRY(need_field(root, "config", [&](const Json& config) {
      return for_each_field(config, [&](std::string_view fqn, const Json& json) -> Status {
        Pt2Payload payload;
        SG_ASSIGN(std::string_view path, need_string(json, "path_name"));
        payload.entry = folder + std::string(path);
        SG_TRY(with_field(json, "use_pickle", [&](const Json& value) -> Status {
          SG_ASSIGN(payload.is_pickled, value.boolean());
          return ok_status();
        }));
        if (!payload.is_pickled)
          SG_TRY(with_field(json, "tensor_meta", [&](const Json& meta) { return read_meta_of(meta, &payload); }));
        if (!out.emplace(std::string(fqn), std::move(payload)).second) return json.error("the tensor occurs twice");
        return ok_status();
      });
    }));
  }
  return out;
}

Status read_weights(const ZipArchive& archive, const Pt2Model& model, const Pt2Layout& layout, Pt2Import* import,
                    Diagnostics* notes) {
  if (const ZipEntry* order = archive.find(layout.root + "byteorder")) {
    SG_ASSIGN(std::string text, archive.read(*order));
    if (text != "little") {
      notes->warning("byte-order", "the weights are stored with the high byte first: they are not read",
                     {archive.name()});
      return ok_status();
    }
  }
  if (!model.pickles.empty() && model.configs.empty()) {
    notes->warning("pickled",
                   "weights and constants are pickled (" + joined(model.pickles, ", ") +
                       "), and nothing is unpickled: the graph has no values",
                   {archive.name()},
                   "save it again with a newer torch (raw weights), or give the values with sg-run --inputs");
    return ok_status();
  }
  SG_ASSIGN(Pt2Payloads payloads, read_payloads(archive, model));
  return WeightReader(archive, payloads, import, notes).read();
}

// --- layouts ---

// All entries are in one folder, or in none. The program is models/NAME.json; in older versions of PyTorch,
// serialized_exported_program.json.
Result<Pt2Layout> find_layout(const ZipArchive& archive) {
  Pt2Layout out;
  constexpr std::string_view kModels = "models/", kOld = "serialized_exported_program.json";
  auto has = [&](const std::string& entry) { return archive.find(entry) != nullptr; };
  auto root_of = [](std::string_view name) {
    return std::string(name.substr(0, name.find('/') == std::string_view::npos ? 0 : name.find('/') + 1));
  };
  std::string first_root = archive.entries().empty() ? std::string() : root_of(archive.entries()[0].name);
  bool is_one_root = std::all_of(archive.entries().begin(), archive.entries().end(),
                                 [&](const ZipEntry& e) { return root_of(e.name) == first_root; });
  if (is_one_root) out.root = first_root;
  for (const ZipEntry& entry : archive.entries()) {
    std::string_view name = std::string_view(entry.name).substr(out.root.size());
    Pt2Model model;
    if (name.starts_with(kModels) && name.ends_with(".json") &&
        name.find('/', kModels.size()) == std::string_view::npos) {
      model.name = name.substr(kModels.size(), name.size() - kModels.size() - 5);
      for (const char* config :
           {"data/weights/%_weights_config.json", "data/weights/%_model_param_config.json",
            "data/constants/%_constants_config.json", "data/constants/%_model_constants_config.json"}) {
        std::string path = config;
        path.replace(path.find('%'), 1, model.name);
        if (has(out.root + path)) model.configs.push_back(out.root + path);
      }
      for (const char* pickle : {"data/weights/%.pt", "data/constants/%.pt"}) {
        std::string path = pickle;
        path.replace(path.find('%'), 1, model.name);
        if (has(out.root + path)) model.pickles.push_back(out.root + path);
      }
    } else if (name == kOld) {
      model.name = "model";
      for (const char* pickle : {"serialized_state_dict.pt", "serialized_state_dict.json", "serialized_constants.pt",
                                 "serialized_constants.json"})
        if (has(out.root + pickle)) model.pickles.push_back(out.root + pickle);
    } else {
      continue;
    }
    model.program = entry.name;
    out.models.push_back(std::move(model));
  }
  out.format =
      has(out.root + "archive_format") ? "a PyTorch archive" : "an archive of torch.export.save as of torch 2.6";
  if (!out.models.empty()) return out;
  Error error{ErrorKind::unreadable,
              "the archive holds no exported program: no models/NAME.json and no " + std::string(kOld),
              {archive.name()},
              {}};
  bool is_pickle = std::any_of(archive.entries().begin(), archive.entries().end(),
                               [&](const ZipEntry& e) { return e.name.ends_with("data.pkl"); });
  error.hint = is_pickle ? "this is what torch.save or torch.jit.save writes; torch.export.save writes a .pt2"
                         : "torch.export.save writes one";
  return error;
}

}  // namespace sg
