#include "libgraph/import/capture_json.h"

#include <algorithm>

#include "libgraph/import/gzip.h"

namespace sg {
namespace {

// Where lists and objects nest deeper than `depth`.
std::optional<uint64_t> find_depth(std::string_view json, size_t depth) {
  size_t open = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '[' || c == '{') {
      if (++open > depth) return i;
    } else if (c == ']' || c == '}') {
      open -= open > 0;
    } else {
      in_string = c == '"';
    }
  }
  return std::nullopt;
}

// A beginning that the parser refuses anyway: all of it need not be unpacked for that.
bool is_no_json(std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const size_t first = head.find_first_not_of(" \t\r\n");
  return head.find('\0') != head.npos || (first != head.npos && head[first] != '{' && head[first] != '[');
}

}  // namespace

Status CaptureText::parse() {
  if (is_gzip(bytes_)) {
    constexpr size_t kHead = 1 << 16;
    std::string head = gunzip_head(bytes_, kHead);
    auto unpacked = is_no_json(head) ? Result<std::string>(std::move(head)) : gunzip(bytes_);
    if (!unpacked.ok()) {
      unpacked.error().where.file = name_;
      return std::move(unpacked.error());
    }
    bytes_ = std::move(unpacked).value();
    if (is_gzip(bytes_))
      return Error{ErrorKind::unreadable, "packed by gzip twice", {name_}, "unpack it once: gunzip < FILE > OTHER"};
  }
  if (bytes_.starts_with("\xEF\xBB\xBF")) bytes_.erase(0, 3);
  auto code = parser_.parse(bytes_).get(root_);
  is_parsed_ = !code;
  if (!code) return ok_status();
  Error error{ErrorKind::unreadable, std::string("not JSON: ") + simdjson::error_message(code), {name_}, {}};
  error.hint = "check the file with: python3 -m json.tool FILE";
  if (code == simdjson::CAPACITY) return error;
  if (code == simdjson::DEPTH_ERROR) {
    error.message = "the JSON nests deeper than " + std::to_string(parser_.max_depth()) + " lists and objects";
    error.where.offset = find_depth(bytes_, parser_.max_depth());
    error.hint.clear();
    return error;
  }
  if (auto fault = find_json_fault(bytes_)) {
    error.message = "not JSON: " + fault->message;
    error.where.offset = fault->offset;
  }
  return error;
}

void CaptureText::forget_dom() {
  root_ = {};
  parser_ = simdjson::dom::parser();
  is_parsed_ = false;
}

void CaptureText::give_up() {
  forget_dom();
  std::string().swap(bytes_);
}

bool KeysMet::add(std::string_view key) {
  if (!more_.empty()) return more_.insert(key);
  const auto end = few_.begin() + few_count_;
  if (std::find(few_.begin(), end, key) != end) return false;
  if (few_count_ < few_.size()) {
    few_[few_count_++] = key;
    return true;
  }
  for (std::string_view one : few_) more_.insert(one);
  return more_.insert(key);
}

Location Json::where() const {
  Location out;
  out.file = text->name();
  out.path = print_place(place);
  out.offset = offset_of(text->json(), place);
  return out;
}

Error Json::error(std::string message, std::string hint) const {
  return {ErrorKind::unreadable, std::move(message), where(), std::move(hint)};
}

namespace {
Error unexpected(const Json& json, std::string_view wanted) {
  return json.error("expected " + std::string(wanted) + ", not " + std::string(json_kind(json.element)));
}
}  // namespace

Result<std::string_view> Json::string() const {
  std::string_view out;
  if (element.get(out)) return unexpected(*this, "a string");
  return out;
}

Result<int64_t> Json::integer() const {
  int64_t out = 0;
  if (element.type() != simdjson::dom::element_type::INT64 || element.get(out)) return unexpected(*this, "an integer");
  return out;
}

Result<uint32_t> Json::natural(uint32_t limit) const {
  SG_ASSIGN(int64_t value, integer());
  if (value < 0 || value > limit) return error(std::to_string(value) + " is outside 0 .. " + std::to_string(limit));
  return static_cast<uint32_t>(value);
}

Result<bool> Json::boolean() const {
  bool out = false;
  if (element.get(out)) return unexpected(*this, "true or false");
  return out;
}

size_t Json::size() const {
  simdjson::dom::array items;
  simdjson::dom::object fields;
  if (!element.get(items)) return items.size();
  return element.get(fields) ? 0 : fields.size();
}

Result<simdjson::dom::array> Json::array() const {
  simdjson::dom::array out;
  if (element.get(out)) return unexpected(*this, "a list");
  return out;
}

Result<simdjson::dom::object> Json::object() const {
  simdjson::dom::object out;
  if (element.get(out)) return unexpected(*this, "an object");
  return out;
}

}  // namespace sg
