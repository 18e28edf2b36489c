// Better grids for codes that stay as they are, when the error is a quadratic form: least squares in closed form.
//
// With v = s t + m 1 on the columns of a group, H their part of the second moments and b the gradient without the group's own share,
// the error changes with s and m as -2 (s t.b + m 1.b) + s^2 tHt + 2 s m tH1 + m^2 1H1.
#pragma once
#include "quant/block_form.h"

namespace slm::quant {

struct QuadraticForm {
  double tb = 0, ob = 0;          // t.b, 1.b
  double tt = 0, to = 0, oo = 0;  // tHt, tH1, 1H1
  double At(double s, double m) const { return -2 * (s * tb + m * ob) + s * s * tt + 2 * s * m * to + m * m * oo; }
};

// The best grid for the form's scheme near `now`, as stored: `now` itself when none is better. `q.tb` and so on are with t = code -
// now.zero.
Grid RefitGrid(const BlockForm& form, const QuadraticForm& q, const Grid& now);

// The best d and d_min for a super-block with t = scale number * (code - zero) and 1 = -min number: v = d t + d_min 1.
Shared RefitShared(const BlockForm& form, const QuadraticForm& q, const Shared& now);

// The best whole numbers near those of `now`, as a grid.
Grid RefitNumbers(const BlockForm& form, const QuadraticForm& q, const Shared& shared, const Grid& now);

}  // namespace slm::quant
