#include "librun/optimizer/optimizer.h"

#include <catch2/catch.hpp>

#include <cmath>

#include "librun/element.h"
#include "librun/thread_team.h"
#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse;

namespace {

constexpr size_t kCount = 5;
const double kStart[kCount] = {0.5, -1.25, 3.0, 0.0, -0.001};
const double kGradients[3][kCount] = {
    {0.1, -0.2, 0.3, 0.0, 5.0}, {-0.05, 0.4, 0.1, 1e-8, -2.0}, {0.2, 0.2, -0.7, 0.3, 0.01}};

Job trained_job(std::string_view dtype, std::string_view more = "") {
  std::string type = std::string(dtype) + "[5]";
  return parse("sg 1.0 job \"t\" world 1\ngraph rank *\n  param %w : " + type + " \"w\"\n  param %frozen : " + type +
               " \"frozen\"\n  input %x : f32[5]\n  backward -\n    %g = aten.neg(%w) : " + type + "\n" +
               std::string(more) + "  grad %g of %w\n  grad none of %frozen\n");
}

// Three steps of an optimizer from kStart with kGradients, stored as T.
template <class T>
std::vector<double> three_steps(std::string_view dtype, std::string_view options, ThreadTeam* team = nullptr) {
  Job job = trained_job(dtype);
  const Graph& graph = job.programs[0]->graph;
  auto parsed = parse_optimizer(options);
  REQUIRE(parsed.ok());
  auto optimizer = Optimizer::make(graph, *parsed);
  REQUIRE(optimizer.ok());
  CHECK(optimizer->parameter_count() == 1);
  const int64_t shape[] = {kCount};
  T value[kCount], gradient[kCount];
  for (size_t i = 0; i < kCount; ++i) value[i] = T(kStart[i]);
  RunValues values{[&](ValueId v) {
                     CHECK((graph.name(v) == "g" || graph.name(v) == "w"));
                     return make_tensor(reinterpret_cast<std::byte*>(graph.name(v) == "g" ? gradient : value),
                                        *parse_dtype(dtype), shape);
                   },
                   {}};
  for (const auto& g : kGradients) {
    for (size_t i = 0; i < kCount; ++i) gradient[i] = T(g[i]);
    REQUIRE(optimizer->update(values, team).ok());
  }
  std::vector<double> out;
  for (T v : value) out.push_back(static_cast<double>(v));
  return out;
}

}  // namespace

TEST_CASE("updates are those of torch.optim") {
  // What PyTorch 2.15 gives on a CPU for the same numbers, in f32 and f64.
  struct Case {
    const char* options;
    std::vector<double> f32, f64;
  };
  for (const Case& c : {
           Case{"sgd:lr=0.1",
                {0.4749999940395355, -1.2899999618530273, 3.0299999713897705, -0.030000003054738045,
                 -0.3019999861717224},
                {0.475, -1.29, 3.0300000000000002, -0.030000001000000002, -0.302}},
           Case{"sgd:lr=0.1,wd=0.05",
                {0.4676121771335602, -1.2713431119918823, 2.9855737686157227, -0.030000003054738045,
                 -0.2979975640773773},
                {0.4676121875, -1.2713430937499999, 2.985573875, -0.030000000995, -0.29799757487500006}},
           Case{"sgd:lr=0.1,momentum=0.9,dampening=0.25,wd=0.05",
                {0.45298343896865845, -1.237547516822815, 2.884385824203491, -0.02250000275671482, -1.065170168876648},
                {0.45298341796874997, -1.237547521484375, 2.8843859296875, -0.0225000014221875, -1.0651701914921876}},
           Case{"sgd:lr=0.1,momentum=0.9,nesterov=1",
                {0.4411599934101105, -1.327620029449463, 3.002730131149292, -0.05700000375509262, -1.180400013923645},
                {0.44116, -1.32762, 3.00273, -0.05700000271, -1.1804000000000001}},
           Case{"adamw",
                {0.49806052446365356, -1.2498477697372437, 2.9983439445495605, -0.0009470871882513165,
                 -0.002613893710076809},
                {0.49806057435678147, -1.2498478610771793, 2.99834423571939, -0.0009470872152394938,
                 -0.0026138935996160217}},
           Case{"adamw:lr=0.02,betas=0.8:0.95,eps=1e-3,wd=0.1",
                {0.4595191478729248, -1.242342472076416, 2.9529800415039062, -0.013766337186098099,
                 -0.03112708032131195},
                {0.4595190779273842, -1.2423422878266928, 2.9529801318031237, -0.013766336437496994,
                 -0.031127078115117928}},
           Case{"adamw:lr=0.02,betas=0.9,0.999,wd=0",
                {0.4615110158920288, -1.2477068901062012, 2.968684196472168, -0.018941804766654968, -0.033278938382864},
                {0.46151103087027634, -1.2477068872663326, 2.9686841221770797, -0.01894180596013314,
                 -0.033278941105489054}},
       }) {
    CAPTURE(c.options);
    const auto narrow = three_steps<float>("f32", c.options), wide = three_steps<double>("f64", c.options);
    for (size_t i = 0; i < kCount; ++i) {
      CHECK(narrow[i] == Approx(c.f32[i]).epsilon(4e-7).margin(1e-9));
      CHECK(wide[i] == Approx(c.f64[i]).epsilon(1e-14));
    }
    ThreadTeam team(2);
    CHECK(three_steps<float>("f32", c.options, &team) == narrow);
  }
}

TEST_CASE("parameters narrower than f32 keep what they cannot hold") {
  // One step is below half a unit in the last place of bf16 at 1; 64 are not.
  Job job = trained_job("bf16");
  auto optimizer = Optimizer::make(job.programs[0]->graph, *parse_optimizer("sgd:lr=0.001"));
  REQUIRE(optimizer.ok());
  const int64_t shape[] = {1};
  BF16 value(1.0f), gradient(1.0f);
  const Graph& graph = job.programs[0]->graph;
  RunValues values{[&](ValueId v) {
                     return make_tensor(reinterpret_cast<std::byte*>(graph.name(v) == "g" ? &gradient : &value),
                                        DType::bf16, shape);
                   },
                   {}};
  REQUIRE(optimizer->update(values).ok());
  CHECK(static_cast<float>(value) == 1.0f);
  for (int i = 0; i < 63; ++i) REQUIRE(optimizer->update(values).ok());
  CHECK(static_cast<float>(value) == static_cast<float>(BF16(1 - 0.064f)));
  CHECK(optimizer->state_bytes() == 4);
}

TEST_CASE("complex parameters are pairs of real ones, and a conjugate gradient is what it stands for") {
  Job job = parse(R"(sg 1.0 job "t" world 1
graph rank *
  param %w : c64[2] "w"
  backward -
    %g = aten.neg(%w) : c64[2]
  grad %g of %w
)");
  const int64_t shape[] = {2};
  const Graph& graph = job.programs[0]->graph;
  for (const char* options : {"sgd:lr=0.1,momentum=0.9,nesterov=1", "adamw:lr=0.02,betas=0.8:0.95,eps=1e-3,wd=0.1"})
    for (const bool conjugate : {false, true}) {
      auto optimizer = Optimizer::make(graph, *parse_optimizer(options));
      REQUIRE(optimizer.ok());
      float value[4], gradient[4];
      for (size_t i = 0; i < 4; ++i) value[i] = static_cast<float>(kStart[i]);
      RunValues values{[&](ValueId v) {
                         const bool is_gradient = graph.name(v) == "g";
                         Tensor t = make_tensor(reinterpret_cast<std::byte*>(is_gradient ? gradient : value),
                                                DType::c64, shape);
                         t.conjugate = is_gradient && conjugate;
                         return t;
                       },
                       {}};
      for (const auto& g : kGradients) {
        for (size_t i = 0; i < 4; ++i) gradient[i] = static_cast<float>(conjugate && i % 2 == 1 ? -g[i] : g[i]);
        REQUIRE(optimizer->update(values).ok());
      }
      const auto expected = three_steps<float>("f32", options);  // equal to PyTorch's: see above
      for (size_t i = 0; i < 4; ++i) CHECK(static_cast<double>(value[i]) == expected[i]);
    }
}

TEST_CASE("strides of parameter and gradient are their own") {
  Job job = parse(R"(sg 1.0 job "t" world 1
graph rank *
  param %w : f32[3, 2] stride [1, 3] "w"
  backward -
    %g = aten.neg(%w) : f32[3, 2]
  grad %g of %w
)");
  auto optimizer = Optimizer::make(job.programs[0]->graph, *parse_optimizer("adamw:lr=0.1"));
  REQUIRE(optimizer.ok());
  const int64_t shape[] = {3, 2};
  float w[6] = {0, 2, 4, 1, 3, 5}, g[6] = {1, -1, 1, -1, 1, -1}, row_major[6] = {0, 1, 2, 3, 4, 5};
  Tensor strided = make_tensor(reinterpret_cast<std::byte*>(w), DType::f32, shape);
  strided.stride = {1, 3};
  const Tensor dense = make_tensor(reinterpret_cast<std::byte*>(row_major), DType::f32, shape);
  const Graph& graph = job.programs[0]->graph;
  auto values = [&](const Tensor& parameter) {
    return RunValues{[&graph, &g, &shape, parameter](ValueId v) {
                       return graph.name(v) == "w" ? parameter
                                                   : make_tensor(reinterpret_cast<std::byte*>(g), DType::f32, shape);
                     },
                     {}};
  };
  auto other = Optimizer::make(job.programs[0]->graph, *parse_optimizer("adamw:lr=0.1"));
  for (int step = 0; step < 2; ++step) {
    REQUIRE(optimizer->update(values(strided)).ok());
    REQUIRE(other->update(values(dense)).ok());
  }
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 2; ++j) CHECK(w[i + 3 * j] == row_major[2 * i + j]);
  CHECK(w[0] != 0);
}

TEST_CASE("gradients that are views of parameters are read before any is written") {
  Job job = parse(R"(sg 1.0 job "t" world 1
graph rank *
  param %w : f32[2, 2] "w"
  param %v : f32[2, 2] "v"
  param %u : f32[2, 2] "u"
  backward -
    %gw = aten.t(%w) : f32[2, 2] stride [1, 2]
  grad %gw of %w
  grad %w of %v
  grad %u of %u
)");
  const Graph& graph = job.programs[0]->graph;
  auto optimizer = Optimizer::make(graph, *parse_optimizer("sgd:lr=1"));
  REQUIRE(optimizer.ok());
  const int64_t shape[] = {2, 2};
  float w[4] = {1, 2, 3, 5}, v[4] = {10, 20, 30, 40}, u[4] = {1, 2, 3, 4};
  RunValues values{
      [&](ValueId id) {
        const std::string_view name = graph.name(id);
        Tensor t = make_tensor(reinterpret_cast<std::byte*>(name == "v" ? v : name == "u" ? u : w), DType::f32, shape);
        return name == "gw" ? swap_axes(t, 0, 1) : t;
      },
      {}};
  REQUIRE(optimizer->update(values).ok());
  CHECK(std::vector<float>(w, w + 4) == std::vector<float>{0, -1, 1, 0});
  CHECK(std::vector<float>(v, v + 4) == std::vector<float>{9, 18, 27, 35});
  CHECK(std::vector<float>(u, u + 4) == std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("a parameter that nobody gave, as nothing reads it, is passed over") {
  Job job = trained_job("f32");
  const Graph& graph = job.programs[0]->graph;
  auto optimizer = Optimizer::make(graph, *parse_optimizer("adamw"));
  REQUIRE(optimizer.ok());
  RunValues none{[](ValueId) { return Tensor(); }, {}};
  REQUIRE(optimizer->update(none).ok());
  CHECK((optimizer->parameter_count() == 0 && optimizer->inputs().empty() && optimizer->state_bytes() == 0));
}

TEST_CASE("an optimizer that cannot be is refused with the reason") {
  auto error_of = [](std::string_view text) {
    Job job = parse(text);
    auto optimizer = Optimizer::make(job.programs[0]->graph, {});
    REQUIRE(!optimizer.ok());
    CHECK(optimizer.error().kind == ErrorKind::cannot_apply);
    return optimizer.error().message;
  };
  const std::string head = "sg 1.0 job \"t\" world 1\ngraph rank *\n  param %w : f32[5] \"w\"\n  backward -\n";
  CHECK(error_of(head + "    %g = aten.neg(%w) : f32[5]\n  output %g\n").find("no gradient of a parameter") !=
        std::string::npos);
  CHECK(error_of(head + "    %g = aten.sum(%w) : f32[]\n  grad %g of %w\n")
            .find("`w` (%w) and its gradient differ in shape") != std::string::npos);
  CHECK(
      error_of(head + "    %g = aten.neg(%w) : f32[5]\n  grad %g of %w\n  grad %g of %w\n").find("has two gradients") !=
      std::string::npos);
}

TEST_CASE("options of optimizers are spelled out or refused") {
  auto good = parse_optimizer("adamw:lr=3e-4,betas=0.9,0.95,eps=1e-6,wd=0.1");
  REQUIRE(good.ok());
  CHECK((good->lr == 3e-4 && good->beta1 == 0.9 && good->beta2 == 0.95 && good->eps == 1e-6 &&
         good->weight_decay == 0.1));
  CHECK(parse_optimizer("adamw")->weight_decay == 0.01);
  CHECK(parse_optimizer("sgd")->weight_decay == 0);
  struct Case {
    const char *text, *part;
  };
  for (Case c :
       {Case{"", "there is no optimizer ``"}, Case{"adam:lr=1", "there is no optimizer `adam`"},
        Case{"sgd:lr", "`lr` is not an option"}, Case{"sgd:lr=", "not a number"}, Case{"sgd:lr=x", "not a number"},
        Case{"sgd:lr=nan", "not a number"}, Case{"sgd:lr=inf", "not a number"}, Case{"sgd:lr=-1", "below 0"},
        Case{"sgd:lr=1,lr=2", "given twice"}, Case{"sgd:betas=0.9:0.99", "not an option of sgd"},
        Case{"adamw:momentum=0.9", "not an option of adamw"}, Case{"adamw:betas=0.9", "two numbers"},
        Case{"adamw:betas=0.9:1", "below 1"}, Case{"adamw:betas=1:2:3", "not a number"},
        Case{"sgd:nesterov=1", "needs momentum"}, Case{"sgd:momentum=0.9,nesterov=2", "0 or 1"},
        Case{"sgd:0.1", "not an option"}}) {
    CAPTURE(c.text);
    auto options = parse_optimizer(c.text);
    REQUIRE(!options.ok());
    CHECK(options.error().kind == ErrorKind::usage);
    CHECK(options.error().message.find(c.part) != std::string::npos);
  }
  CHECK(parse_optimizer("adamw:beta=0.9").error().hint.find("betas") != std::string::npos);
}
