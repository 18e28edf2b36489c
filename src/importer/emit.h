// Makes the nodes and constants of our graph while the ONNX graph is walked.
#pragma once
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "importer/value.h"

namespace slm::importer {

// Cosines and sines of a rotation, which become constants when the context is known.
struct RopeTable {
  graph::ValueId cos = graph::kNoValue, sin = graph::kNoValue;
  int64_t half = 0;
  std::vector<float> cos_rows, sin_rows;  // of a table in the file: [rows, half]
  std::string cos_value, sin_value;       // else values of the call, [.., T, columns]
  int64_t columns = 0;                    // 2 * half: the second half is the first again
};

class Emitter {
 public:
  Emitter();
  graph::ValueId ids() const { return g_.input_ids; }
  graph::ValueId positions() const { return g_.input_positions; }

  // A node named after `name`, with one output [T, width].
  graph::ValueId Node(graph::Op op, const std::string& name, std::vector<graph::ValueId> inputs, int64_t width,
                      std::vector<graph::Attr> attrs = {});
  graph::ValueId Reshaped(const std::string& name, graph::ValueId x, graph::Shape shape);
  graph::ValueId Rows(const model::Tensor& t, int64_t begin, int64_t end);  // a constant
  graph::ValueId Numbers(const std::string& name, std::vector<float> values);
  // The tables of two values of the call, or of the file's.
  const RopeTable& Tables(const std::string& cos, const std::string& sin, int64_t half, int64_t columns);
  RopeTable& TablesOfFile(const Value& cos, const Value& sin, int64_t half);

  // The rows of `v` [T, width] as a value of the graph: what kRows, kPart, kSigmoid and kSquare stand for, with all factors applied.
  // Errors: kUnsupported.
  Result<graph::ValueId> Materialise(Value& v);
  // The same of kRows without the factor `scale`.
  graph::ValueId Unscaled(Value& v);
  // `v` seen as rows: a part of a product is a product of fewer rows. Null: it is none.
  static ValuePtr AsRows(const ValuePtr& v);

  void SetLogits(graph::ValueId v) { g_.output_logits = v; }
  graph::Graph& graph() { return g_; }
  const graph::Graph& graph() const { return g_; }
  Weights& weights() { return weights_; }
  std::vector<RopeTable> TakeTables() { return std::move(tables_list_); }
  // Says of every node which decoder layer it belongs to.
  void NumberLayers();

 private:
  std::string Unique(std::string name);
  graph::ValueId Table(const std::string& name, int64_t half);

  graph::Graph g_;
  Weights weights_;
  std::set<std::string> names_;
  std::map<std::tuple<const model::Tensor*, int64_t, int64_t>, graph::ValueId> constants_;
  std::map<std::tuple<const void*, const void*, std::string>, size_t> tables_;  // of the file's, or by the names of values
  std::vector<RopeTable> tables_list_;
};

}  // namespace slm::importer
