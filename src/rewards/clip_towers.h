// SPDX-License-Identifier: Apache-2.0
// CLIP's two encoders with their tokenizer, loaded once and shared by all rewards of one model.
//
//   DIRECTORY/config.json         of a CLIPModel: text_config, vision_config, projection_dim
//   DIRECTORY/model.safetensors   under Hugging Face's names or open_clip's
//   DIRECTORY/vocab.json, merges.txt, tokenizer_config.json, special_tokens_map.json
//
// The last line's files may be in a directory of their own.
//
// Embeddings of the newest images and texts are kept, so that several rewards over the same images
// cost one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/image8.h"
#include "core/model/clip_text.h"
#include "core/model/clip_vision.h"
#include "io/clip_tokenizer.h"

namespace oxbow::rewards {

// How an 8-bit image becomes the encoder's input (core/model/clip_pixels).
enum class ClipInput {
  kProcessor,      // Hugging Face's CLIPImageProcessor: Pillow's bicubic, then the middle.
  kTorchvision,    // The same, with torchvision's borders, as open_clip does it.
  kBilinearCrop,   // torchvision's bilinear on floats, then the middle.
  kBicubicPadded,  // torchvision's bicubic on floats to the longer side, then zeros around it.
};

struct ClipTowersOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // Type of weights and products.
  int64_t rows_max = 32;              // Images or texts of one pass.
  size_t kept_max = 4096;             // Embeddings.
  std::filesystem::path tokenizer;    // Its directory; empty: the model's.
};

class ClipTowers {
 public:
  // Towers of this identity that are loaded already; null if there are none.
  using Loaded = std::function<std::shared_ptr<ClipTowers>(const std::string& identity)>;

  // `loaded` is asked once the files are hashed: what it gives is the result, and no weight is
  // loaded. kNotFound, kDataLoss or kFailedPrecondition, naming the file or tensor.
  static absl::StatusOr<std::shared_ptr<ClipTowers>> Open(const std::filesystem::path& directory,
                                                          const ClipTowersOptions& options = {},
                                                          const Loaded& loaded = nullptr);

  // Whether EmbedImages takes the image: a valid size, 1 or 3 channels, enough bytes, no strip
  // that would be a giant once its shorter side is resized. kInvalidArgument.
  absl::Status CheckImage(const Image8& image) const;

  // Unit vectors [n, projection] in float32 on the CPU, one for each image or text. Requires images
  // that CheckImage takes. Thread-safe; one pass runs at a time. A row depends on its own image or
  // text alone, up to rounding.
  at::Tensor EmbedImages(absl::Span<const Image8* const> images, ClipInput input);
  at::Tensor EmbedTexts(absl::Span<const std::string> texts);

  double scale() const { return scale_; }  // exp(logit_scale)
  int64_t width() const { return vision_params_.projection_dim; }
  int64_t side() const { return vision_params_.image_size; }  // The image it sees.
  // A hash of config, tokenizer and weights, and the type of products.
  const std::string& identity() const { return identity_; }
  int64_t images_embedded() const;  // Passes through the image encoder so far, in images.
  int64_t texts_embedded() const;   // Passes through the text encoder so far, in texts.

 private:
  ClipTowers(model::ClipTextParams text, model::ClipVisionParams vision,
             io::ClipTokenizer tokenizer, const ClipTowersOptions& options)
      : options_(options),
        text_params_(std::move(text)),
        vision_params_(std::move(vision)),
        tokenizer_(std::move(tokenizer)) {}

  absl::Status Bind(model::NamedTensors tensors);
  at::Tensor InputOf(const Image8& image, ClipInput input) const;
  // [1, n], up to the end of the text and perhaps a little beyond, so that few lengths differ.
  at::Tensor IdsOf(const std::string& text) const;
  // Rows by key: those that are kept, and those of passes over `input(i)` for all others. A pass
  // takes inputs of one size.
  template <typename Input, typename Encode>
  at::Tensor Embed(const std::vector<std::string>& keys, const Input& input, const Encode& encode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(const std::string& key, const at::Tensor& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ClipTowersOptions options_;
  const model::ClipTextParams text_params_;
  const model::ClipVisionParams vision_params_;
  const io::ClipTokenizer tokenizer_;
  std::unique_ptr<model::ClipTextEncoder> text_;
  std::unique_ptr<model::ClipVisionEncoder> vision_;
  double scale_ = 1;
  std::string identity_;

  mutable absl::Mutex mutex_;
  std::map<std::string, at::Tensor> kept_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> oldest_ ABSL_GUARDED_BY(mutex_);  // Keys of kept_, in their order.
  int64_t images_embedded_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t texts_embedded_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The CLIP models that rewards of this process hold: equal ones are loaded once. Thread-safe.
class LoadedTowers {
 public:
  // Those that someone holds, if they are of this directory or of one with the same identity
  // (ClipTowers::identity), on the same device; else they are loaded. Errors are those of
  // ClipTowers::Open.
  absl::StatusOr<std::shared_ptr<ClipTowers>> Get(const std::filesystem::path& directory,
                                                  const ClipTowersOptions& options);

 private:
  using Key =
      std::pair<std::string, std::string>;  // Directories with type, or an identity; device.
  absl::Mutex mutex_;
  std::map<Key, std::weak_ptr<ClipTowers>> by_directory_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, std::weak_ptr<ClipTowers>> by_identity_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::rewards
