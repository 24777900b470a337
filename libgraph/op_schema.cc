#include "libgraph/op_schema.h"

#include <algorithm>
#include <array>
#include <optional>

#include "libgraph/base/chars.h"

namespace sg {
namespace {

struct NamedKind {
  std::string_view name;
  ParamKind kind;
  ParamKind list_kind;
};

// The kind of a bare type, and of a list of it.
constexpr NamedKind kKinds[] = {
    {"Tensor", ParamKind::tensor, ParamKind::tensor_list},
    {"Scalar", ParamKind::scalar, ParamKind::any},
    {"int", ParamKind::integer, ParamKind::integer_list},
    {"SymInt", ParamKind::integer, ParamKind::integer_list},
    {"float", ParamKind::floating, ParamKind::any},
    {"bool", ParamKind::boolean, ParamKind::any},
    {"str", ParamKind::string, ParamKind::any},
    {"ScalarType", ParamKind::dtype, ParamKind::any},
    {"Layout", ParamKind::layout, ParamKind::any},
    {"Device", ParamKind::device, ParamKind::any},
    {"MemoryFormat", ParamKind::memory_format, ParamKind::any},
    {"Generator", ParamKind::any, ParamKind::any},
    {"GroupName", ParamKind::group, ParamKind::any},
    {"Graph", ParamKind::graph, ParamKind::any},
    {"any", ParamKind::any, ParamKind::any},
};

struct TypeSpec {
  ParamKind kind = ParamKind::any;
  bool optional = false;
  bool is_list = false;
  char alias = 0;
  bool written = false;
};

class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : text_(text) {}

  Status parse(OpInfo* op) {
    SG_TRY(expect("("));
    SG_TRY(parse_params(op));
    SG_TRY(expect(")"));
    skip_spaces();
    SG_TRY(expect("->"));
    SG_TRY(parse_results(op));
    skip_spaces();
    return at_ == text_.size() ? ok_status() : fail("text after the results");
  }

 private:
  Status parse_params(OpInfo* op) {
    bool keyword_only = false;
    for (bool first = true; !peek(")"); first = false) {
      if (!first) SG_TRY(expect(","));
      if (accept("*")) {
        keyword_only = true;
        continue;
      }
      SG_ASSIGN(TypeSpec type, parse_type());
      Param p;
      p.kind = type.kind;
      p.optional = type.optional;
      p.alias = type.alias;
      p.written = type.written;
      p.keyword_only = keyword_only;
      p.name = word();
      if (p.name.empty()) return fail("a parameter without a name");
      if (accept("=")) {
        p.has_default = true;
        p.default_text = default_text();
      }
      op->params.push_back(p);
    }
    return ok_status();
  }

  Status parse_results(OpInfo* op) {
    if (!accept("(")) return parse_result(op);
    for (bool first = true; !accept(")"); first = false) {
      if (!first) SG_TRY(expect(","));
      SG_TRY(parse_result(op));
    }
    return ok_status();
  }

  Status parse_result(OpInfo* op) {
    SG_ASSIGN(TypeSpec type, parse_type());
    word();  // the names of results are not used
    op->results.push_back({type.kind, type.alias, type.written});
    op->returns_list = op->returns_list || type.is_list;
    return ok_status();
  }

  Result<TypeSpec> parse_type() {
    std::string_view name = word();
    auto* known =
        std::find_if(std::begin(kKinds), std::end(kKinds), [&](const NamedKind& k) { return k.name == name; });
    if (known == std::end(kKinds)) return fail("unknown type '" + std::string(name) + "'").error();
    TypeSpec type;
    type.kind = known->kind;
    if (here() == '(') {
      SG_TRY(parse_alias(&type));
    }
    while (here() == '?' || here() == '[') {
      if (text_[at_++] == '?') {
        type.optional = true;  // also for the element in "Tensor?[]": a list that may hold nulls may be omitted too
        continue;
      }
      while (is_digit(here())) ++at_;
      if (here() != ']') return fail("a list type without ']'").error();
      ++at_;
      type.kind = known->list_kind;
      type.is_list = true;
      type.optional = false;
    }
    return type;
  }

  Status parse_alias(TypeSpec* type) {
    ++at_;
    type->alias = here();
    if (type->alias < 'a' || type->alias > 'z') return fail("an alias set is a letter");
    ++at_;
    type->written = here() == '!';
    if (type->written) ++at_;
    if (here() != ')') return fail("an alias annotation without ')'");
    ++at_;
    return ok_status();
  }

  // The text up to the next comma or parenthesis outside brackets and quotes.
  std::string_view default_text() {
    size_t begin = at_;
    bool quoted = false;
    for (int depth = 0; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == '\'') quoted = !quoted;
      if (quoted) continue;
      if (c == '[') ++depth;
      if (c == ']') --depth;
      if (depth == 0 && (c == ',' || c == ')')) break;
    }
    return text_.substr(begin, at_ - begin);
  }

  std::string_view word() {
    skip_spaces();
    size_t begin = at_;
    while (is_word(here())) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  void skip_spaces() {
    while (here() == ' ') ++at_;
  }
  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool peek(std::string_view s) {
    skip_spaces();
    return text_.substr(at_).starts_with(s);
  }
  bool accept(std::string_view s) {
    if (!peek(s)) return false;
    at_ += s.size();
    return true;
  }
  Status expect(std::string_view s) { return accept(s) ? ok_status() : fail("expected '" + std::string(s) + "'"); }
  Status fail(std::string what) const {
    return Error{ErrorKind::internal,
                 "op schema '" + std::string(text_) + "', column " + std::to_string(at_ + 1) + ": " + std::move(what),
                 {},
                 {}};
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Status parse_schema(OpInfo* op) { return SchemaParser(op->schema).parse(op); }

}  // namespace sg
