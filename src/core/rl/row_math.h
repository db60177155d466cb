// Sums over the elements of each row, and what a velocity says of the clean picture.
//
// Float64, over contiguous rows of one shape: a row's bits do not depend on the rows beside it.
#pragma once

namespace at {
class Tensor;
}

namespace oxbow::rl {

// [R, ...] -> [R]
at::Tensor ElementMean(const at::Tensor& rows);

// `column` [R] shaped to multiply rows of `like` [R, ...], as float64.
at::Tensor OverRows(const at::Tensor& column, const at::Tensor& like);

// x_t - t v, [R, ...] float64; `t` is [R].
at::Tensor CleanPrediction(const at::Tensor& x_t, const at::Tensor& t, const at::Tensor& v);

}  // namespace oxbow::rl
