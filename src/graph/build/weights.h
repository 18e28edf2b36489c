// Weights as graph constants: finds a tensor by role, checks its shape against the configuration, and cuts the row ranges of
// tensors that the file stores fused. Each constant enters the graph once, so that a tied head is the embedding itself.
#pragma once
#include <map>
#include <string>
#include <tuple>

#include "graph/ir.h"
#include "model/model.h"

namespace slm::graph {

// Rows [begin, end) of the tensor with a role.
struct RowRange {
  int64_t begin, end;
};

class Weights {
 public:
  // Both must outlive this object.
  Weights(const model::Model& model, Graph& graph) : model_(model), graph_(graph) {}

  bool Has(model::Role role, int layer) const { return model_.Find(role, layer) != nullptr; }
  // A whole tensor of exactly this shape. On an error: remembers it (the first one stays) and returns kNoValue.
  ValueId Whole(model::Role role, int layer, const Shape& shape);
  // Rows of a tensor of exactly this shape; `part` names the piece ("q").
  ValueId Rows(model::Role role, int layer, const Shape& shape, RowRange rows, const std::string& part);
  // f32 values computed by the builder.
  ValueId Computed(const std::string& name, Shape shape, std::vector<float> data);
  // The first thing that went wrong.
  const Status& status() const { return status_; }

 private:
  const model::Tensor* Checked(model::Role role, int layer, const Shape& shape);
  ValueId Add(const model::Tensor& t, RowRange rows, const std::string& suffix);
  const model::Model& model_;
  Graph& graph_;
  std::map<std::tuple<const model::Tensor*, int64_t, int64_t>, ValueId> known_;
  Status status_;
};

}  // namespace slm::graph
