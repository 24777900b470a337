// Typed access to the JSON of a capture: every failure names the file, the JSON path and the byte offset.
//
// A Json carries the way it was reached: libgraph/base/json_read.h.
// Internal to the importer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "libgraph/base/flat_set.h"
#include "libgraph/base/json_read.h"
#include "libgraph/base/result.h"

namespace sg {

// One file's text and its DOM. Does not move: Json values point into it.
class CaptureText {
 public:
  CaptureText(std::string name, std::string bytes) : name_(std::move(name)), bytes_(std::move(bytes)) {}
  CaptureText(const CaptureText&) = delete;
  CaptureText& operator=(const CaptureText&) = delete;

  Status parse();  // unpacks gzip; REQUIRES: called before root(), and again after forget_dom()
  bool is_parsed() const { return is_parsed_; }
  void forget_dom();  // many times as large as the text. Nothing may point into it
  simdjson::dom::element root() const { return root_; }
  const std::string& name() const { return name_; }
  std::string_view json() const { return bytes_; }
  void give_up();  // the text, too; the name stays

 private:
  std::string name_;
  std::string bytes_;
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
  bool is_parsed_ = false;
};

struct Json {
  simdjson::dom::element element;
  const JsonPlace* place = nullptr;
  const CaptureText* text = nullptr;

  bool is_null() const { return element.is_null(); }
  bool is_string() const { return element.is_string(); }
  bool is_array() const { return element.is_array(); }
  bool is_object() const { return element.is_object(); }
  bool is_integer() const { return element.is_int64(); }
  size_t size() const;  // items of a list, fields of an object; what to make room for: enormous ones count as less

  Error error(std::string message, std::string hint = {}) const;  // unreadable, at this place
  Location where() const;

  Result<std::string_view> string() const;
  Result<int64_t> integer() const;
  Result<uint32_t> natural(uint32_t limit) const;  // 0 .. limit
  Result<bool> boolean() const;
  Result<simdjson::dom::array> array() const;
  Result<simdjson::dom::object> object() const;
};

// The keys of one object that have been met. Most objects have few.
class KeysMet {
 public:
  bool add(std::string_view key);  // false = it was met before

 private:
  std::array<std::string_view, 8> few_;
  size_t few_count_ = 0;
  FlatTextSet more_;  // where the few are too few, all of them
};

// Calls fn(key, Json) for each field, or fn(index, Json) for each item; stops at the first error.
template <class Fn>
Status for_each_field(const Json& value, const Fn& fn) {
  SG_ASSIGN(auto fields, value.object());
  for (auto field : fields) {
    JsonPlace place = JsonPlace::at_key(value.place, field.key);
    SG_TRY(fn(field.key, Json{field.value, &place, value.text}));
  }
  return ok_status();
}

// The same; a key that occurs twice is an error.
template <class Fn>
Status for_each_field_once(const Json& value, const Fn& fn) {
  KeysMet met;
  return for_each_field(value, [&](std::string_view key, const Json& field) -> Status {
    if (!met.add(key)) return field.error("the key occurs twice");
    return fn(key, field);
  });
}

template <class Fn>
Status for_each_item(const Json& value, const Fn& fn) {
  SG_ASSIGN(auto items, value.array());
  size_t i = 0;
  for (auto item : items) {
    JsonPlace place = JsonPlace::at_index(value.place, i);
    SG_TRY(fn(i, Json{item, &place, value.text}));
    ++i;
  }
  return ok_status();
}

}  // namespace sg
