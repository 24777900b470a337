#include "tests/support/pointwise_cases.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace sg::test {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) out.push_back(part);
  return out;
}

HeldTensor read_tensor(const std::string& text) {  // DTYPE:SHAPE:HEX
  auto part = split(text, ':');
  std::vector<int64_t> shape;
  if (part.size() > 1)
    for (const std::string& d : split(part[1], 'x')) shape.push_back(std::stoll(d));
  HeldTensor out;
  out.tensor = make_tensor(nullptr, *parse_dtype(part[0]), shape);
  for (size_t i = 0; part.size() > 2 && i < part[2].size(); i += 2)
    out.memory.push_back(static_cast<std::byte>(std::stoi(part[2].substr(i, 2), nullptr, 16)));
  out.tensor.data = out.memory.data();
  return out;
}

ParamValue read_value(const std::string& text, PointwiseCase* c) {
  ParamValue p;
  std::string body = text.substr(2);
  p.kind = ParamValue::Kind::scalar;
  if (text[0] == 'i') p.scalar = Scalar::integer(std::stoll(body));
  if (text[0] == 'f') p.scalar = Scalar::floating(std::stod(body));
  if (text[0] == 'b') p.scalar = Scalar::boolean(body == "1");
  if (text[0] == 's') {
    c->texts.push_back(std::make_unique<std::string>(body));
    p.kind = ParamValue::Kind::text, p.text = *c->texts.back();
  }
  if (text[0] == 't') {
    c->held.push_back(std::make_unique<HeldTensor>(read_tensor(body)));
    p.kind = ParamValue::Kind::tensor, p.tensor = c->held.back()->tensor;
  }
  return p;
}

PointwiseCase read_case(const std::string& line) {
  PointwiseCase c;
  c.line = line;
  auto parts = split(line, ';');
  c.op = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    size_t equals = parts[i].find('=');
    std::string name = parts[i].substr(0, equals), value = parts[i].substr(equals + 1);
    if (name.empty()) c.expected = read_tensor(value.substr(2));
    else c.arguments[name] = read_value(value, &c);
  }
  c.expected.tensor.data = c.expected.memory.data();
  return c;
}

}  // namespace

std::string written_argument(const std::string& op) {
  const OpInfo* info = find_op(op);
  for (const Param& p : info->params)
    if (p.written) return std::string(p.name);
  return {};
}

std::vector<PointwiseCase> read_pointwise_cases() {
  const char* file = std::getenv("SG_POINTWISE_CASES");
  std::ifstream in(file ? file : "tests/data/pointwise_cases.txt");
  std::vector<PointwiseCase> out;
  for (std::string line; std::getline(in, line);) out.push_back(read_case(line));
  return out;
}

}  // namespace sg::test
