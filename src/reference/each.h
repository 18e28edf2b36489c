// Operators of one floating input, value by value.
#pragma once
#include "reference/call.h"

namespace slm::reference {

// f(value) of input 0, rounded to its type.
template <class F>
Result<Arrays> EachFloat(const Call& c, F f) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  Array y = *x;
  for (double& v : y.f) v = RoundTo(y.type, f(v));
  return One(std::move(y));
}

}  // namespace slm::reference
