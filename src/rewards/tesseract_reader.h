// SPDX-License-Identifier: Apache-2.0
// Reads text in pictures with Tesseract 5, its LSTM recogniser alone.
//
// An engine of Tesseract is not thread-safe and takes some 20 MB. The reader keeps a pool of them:
// one for each caller that reads at the same time, up to `engines`; more callers wait. A reading
// depends on picture and settings alone. One thread reads a picture, whatever OpenMP's settings.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/image8.h"
#include "rewards/ocr_scorer.h"

namespace oxbow::rewards {

struct TesseractSettings {
  // The directory of eng.traineddata. Empty: TESSDATA_PREFIX, else Debian's directory.
  std::string tessdata;
  // Tesseract's page segmentation: 3 automatic, 4 column, 6 block, 7 line, 8 word, 11 sparse,
  // 13 raw line. 0: 7 for a small picture, else 3.
  int page_mode = 0;
  // The picture is enlarged by this factor, with bilinear weights, before it is read. 0: 3 for a
  // small picture, else 1.
  int scale = 0;
  // White pixels around the enlarged picture. -1: 12 for a small picture, else 0.
  int margin = -1;
  std::string characters;                       // The only ones that are read. Empty: all.
  absl::Duration deadline = absl::Seconds(10);  // For one picture.
  int engines = 0;  // At a time, 1 to 256. 0: one for each core of the machine.
};

// A picture that is less high is small: the recogniser wants letters of some 30 pixels.
inline constexpr int kSmallPictureHeight = 64;
inline constexpr int kReadSideMax = 8192;  // Width and height as read, with the margin.

// kInvalidArgument names a setting that makes no sense. Loads nothing.
absl::Status CheckTesseract(const TesseractSettings& settings);

class TesseractReader final : public TextReader {
 public:
  // Reads the data and starts one engine. kInvalidArgument as CheckTesseract; kNotFound
  // names the data's file; kFailedPrecondition: Tesseract refuses the data.
  static absl::StatusOr<std::unique_ptr<TesseractReader>> Create(TesseractSettings settings);
  ~TesseractReader() override;

  // Empty also for a picture of one colour, in which the recogniser would see letters.
  //
  // kInvalidArgument for a picture whose bytes do not fit its size, or that is too large to be
  // read. kDeadlineExceeded after `deadline`, which is looked at between words: the layout of a
  // page comes before and takes its time. kInternal: Tesseract fails.
  absl::StatusOr<std::string> Read(const Image8& picture) override;

  const std::string& identity() const override;
  int engines() const override;
  std::string help() const override;

 private:
  struct Impl;
  explicit TesseractReader(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace oxbow::rewards
