// Slices of an array and arrays of slices: what Loop and Scan hand to their bodies and take from them.
#pragma once
#include "reference/call.h"

namespace slm::reference {

// x at one place of an axis, which is gone.
Result<Array> SliceAt(const Array& x, int64_t axis, int64_t at);
// Arrays of one type and shape side by side along a new axis. Errors: kCorrupt when they differ, or there is none.
Result<Array> Stack(const Arrays& parts, int64_t axis);
// What stacking no slice of this type gives, along a new first axis. Errors: kUnsupported when the shape is open.
Result<Array> StackOfNone(const onnx::ValueInfo& slice);

}  // namespace slm::reference
