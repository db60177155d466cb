// SPDX-License-Identifier: Apache-2.0
// Bilinear resizing of 8-bit images, bit for bit as OpenCV 4's cv2.resize(INTER_LINEAR) does it.
//
// Not antialiased: an output pixel is a mean of two by two input pixels around its centre,
//
//   c = (x + 1/2) in / out - 1/2,  weights 1 - (c - floor c) and c - floor c
//
// with c in float32, weights in fixed point with 11 bits, the border repeated. Rows are mixed in
// integers, and columns after them with the last bits cut off, as OpenCV's kernels for 8 bits do.
// An image that shrinks to exactly half has the mean of four pixels instead.
//
// mmdetection and PaddleOCR resize so.
#pragma once

#include "base/image8.h"

namespace oxbow::reward {

// Requires a valid image and positive sizes.
Image8 ResizeAsOpencv(const Image8& image, int width, int height);

}  // namespace oxbow::reward
