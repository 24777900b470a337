#include "tests/support/sample_job.h"

#include <limits>

namespace sg::test {

Job sample_job(const std::vector<std::string>& noise) {
  Job job;
  Pool& pool = *job.pool;
  for (const std::string& s : noise) {
    pool.str(s);
    pool.op("noise." + s);
    pool.tensor(DType::i8, {pool.exprs.add(pool.exprs.symbol(s), pool.exprs.constant(7))}, pool.str(s));
  }
  StrId u0 = pool.str("u0");
  Expr rows = pool.exprs.max(pool.exprs.constant(1), pool.exprs.symbol(u0));
  TypeId matrix = pool.tensor(DType::bf16, {rows, pool.exprs.constant(64)}, pool.str("cpu"));
  job.title = pool.str("small");
  job.note = "two lines\nof text";
  job.world = 2;
  job.groups.push_back({pool.str("ep"), 1, 5, {{{0, 1}, {{0, pool.str("113")}, {1, pool.str("114")}}}}});
  job.meshes.push_back({StringTable::kEmpty, {pool.str("ep")}, {2}});
  job.provenance.push_back({pool.str("sg-import"), pool.str("0.1.0"), {}, pool.str("sha256:" + std::string(64, '0'))});
  job.extra.push_back({pool.str("k"), pool.str("[1,2]")});
  Program& program = job.add_program();
  Symbol symbol{u0, SymbolKind::data};
  symbol.min = 0;
  program.symbols.push_back(symbol);
  program.guards.push_back({Relation::le, rows, pool.exprs.constant(9), {}});
  program.nested.push_back(std::make_unique<Nested>(Nested{pool.str("body"), Graph(&pool)}));
  Graph& body = program.nested[0]->graph;
  body.add_output({body.add_input("x", matrix, {})});

  Graph& g = program.graph;
  Input parameter;
  parameter.kind = InputKind::parameter;
  parameter.fqn = pool.str("w");
  parameter.sharding = {{pool.exprs.constant(128), pool.exprs.constant(64)}, {pool.str("S(0)")}, {pool.str("ep")}};
  ValueId w = g.add_input("w", matrix, parameter);
  NodeSpec spec;
  spec.op = pool.op("sample.split");
  spec.args = {Arg::value(w), Arg::list({Arg::expr(rows), Arg::integer(-3)}), Arg::floating(-0.0)};
  spec.args.push_back(Arg::complex(1, std::numeric_limits<double>::quiet_NaN()).set_key(pool.str("alpha")));
  spec.args.push_back(
      Arg::dict({Arg::graph(NestedId(0)).set_key(pool.str("g")), Arg(Arg::group(GroupId(0))).set_key(u0)})
          .set_key(pool.str("body")));
  spec.result_types = {matrix, Pool::kUnknownType};
  spec.names = {"a", "b"};
  spec.label = "split";
  spec.is_tuple = true;
  spec.module = pool.str("layers.0");
  spec.source = pool.sources.intern({pool.str("f.py"), 12, pool.str("forward")});
  NodeMeta meta;
  meta.recompute = Recompute::must_save;
  meta.binds.emplace();
  meta.result_chunks = {{0, {}}, {1, pool.str("o")}};
  spec.meta = pool.metas.intern(meta);
  NodeId split = g.append(spec);
  NodeSpec last;
  last.op = pool.op("sample.join");
  last.args = {Arg::value(g.node(split).result(0)), Arg::dtype(DType::c64), Arg::text(ArgKind::string, pool.str("s"))};
  last.result_types = {matrix};
  last.phase = Phase::backward;
  last.forward = split;
  NodeId mm = g.append(last);
  g.add_output({g.node(mm).result(0), OutputKind::gradient, w});
  g.add_output({ValueId(), OutputKind::none});
  return job;
}

}  // namespace sg::test
