// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/import/flow_factory_models.h"
#include "config/import/translation.h"

namespace oxbow::config {

std::vector<std::string> FlowFactorySize(const Translation& t, const std::string& section) {
  const ForeignSetting resolution = t.Get(section + ".resolution");
  std::vector<std::string> size = resolution.items;
  if (size.size() == 1) size.push_back(size[0]);
  size.resize(2);
  const ForeignSetting height = t.Get(section + ".height");
  const ForeignSetting width = t.Get(section + ".width");
  if (height.present) size[0] = height.text();
  if (width.present) size[1] = width.text();
  return size;
}

namespace {

constexpr double kGibibyte = 1 << 30;
constexpr double kAdvantageFloor = 1e-6;  // Floor of the standard deviation; constant there.

class MethodSections {
 public:
  explicit MethodSections(Translation& t) : t_(t), model_(ForeignModelOf(t)) {}

  void All() {
    Image();
    Steps();
    Batch();
    Advantages();
    Method();
    Averages();
    Optimizer();
    Experience();
    Memory();
  }

 private:
  void Image() {
    Frames();
    const std::vector<std::string> size = FlowFactorySize(t_, "train");
    const ForeignSetting height = t_.Get("train.height");
    const ForeignSetting width = t_.Get("train.width");
    t_.Set("sampling.height", size[0], height.present ? height : t_.Get("train.resolution"));
    t_.Set("sampling.width", size[1], width.present ? width : t_.Get("train.resolution"));
    const ForeignSetting guidance = t_.Get("train.guidance_scale");
    t_.Set(model_.guidance_key, std::max(model_.guidance_min, guidance.number()), guidance);
    const ForeignSetting storage = t_.Get("train.latent_storage_dtype");
    if (storage.null) {
      t_.Set("sampling.storage", "f32", storage);
    } else {
      t_.Choose("sampling.storage", storage, {{"fp32", "f32"}, {"fp16", "f16"}, {"bf16", "bf16"}});
    }
    const ForeignSetting type = t_.Get("model.model_type");
    t_.Set("sampling.schedule", model_.schedule, type);
    Checkpointing();
  }

  // Their batch of a device counts images, a pass here the trained steps of images.
  void Memory() {
    const v1::RunConfig& config = t_.config();
    const v1::SamplingConfig& sampling = config.sampling();
    const bool all = sampling.window().kind() == v1::WINDOW_KIND_ALL;
    const uint64_t steps = forward_ ? config.method().times().count()
                           : all    ? sampling.sde_count()
                                    : sampling.window().size();
    const ForeignSetting images = t_.Get("train.per_device_batch_size");
    t_.Set("batch.rows_per_pass", absl::StrCat(images.count() * std::max<uint64_t>(1, steps)),
           images);
  }

  // The frames of a video, and UniPC's whole timesteps and shift, which come with it.
  void Frames() {
    const ForeignSetting frames = t_.Get("train.num_frames");
    const ForeignSetting shift = t_.Get("scheduler.flow_shift");
    if (!model_.draws_videos) {
      for (const char* key : {"train.num_frames", "eval.num_frames", "scheduler.flow_shift"}) {
        t_.Allow(t_.Get(key), {}, "is for videos, and this model draws images");
      }
    } else {
      if (frames.present) t_.Set("sampling.frames", frames.text(), frames);
      if (shift.present) t_.Set("sampling.shift", shift.text(), shift);
      t_.Set("sampling.whole_timesteps", "true", t_.Get("model.model_type"));
    }
    for (const char* key : {"train.frame_rate", "eval.frame_rate"}) {
      t_.Allow(t_.Get(key), {}, "no model that runs here takes a frame rate");
    }
  }

  void Checkpointing() {
    const ForeignSetting plain = t_.Get("train.enable_gradient_checkpointing");
    const ForeignSetting mode = t_.Get("train.enable_gradient_checkpointing.mode");
    if (mode.present) {
      const bool off = mode.text() == "none";
      t_.Set("model.checkpoint_activations", off ? "false" : "true", mode);
      if (!off && mode.text() != "full") t_.Differs(mode, "every block is checkpointed");
    } else if (absl::EqualsIgnoreCase(plain.text(), "true") ||
               absl::EqualsIgnoreCase(plain.text(), "false")) {
      t_.Set("model.checkpoint_activations", absl::AsciiStrToLower(plain.text()), plain);
    } else {
      t_.Refuse(plain, "expected true, false or a section with `mode`");
    }
  }

  void Steps() {
    const ForeignSetting dynamics = t_.Get("scheduler.dynamics_type");
    if (!t_.Choose("sampling.dynamics", dynamics,
                   {{"Flow-SDE", "flow_sde"},
                    {"Dance-SDE", "dance_sde"},
                    {"CPS", "cps"},
                    {"ODE", "ode"}})) {
      return;
    }
    if (absl::EqualsIgnoreCase(dynamics.text(), "ODE")) return;
    const ForeignSetting noise = t_.Get("scheduler.noise_level");
    t_.Set("sampling.eta", noise.text(), noise);
    Window();
  }

  // Flow-Factory's stochastic steps: num_sde_steps of the candidates, drawn again for every epoch.
  void Window() {
    const uint64_t steps = t_.Get("train.num_inference_steps").count();
    const ForeignSetting listed = t_.Get("scheduler.sde_steps");
    const ForeignSetting drawn = t_.Get("scheduler.num_sde_steps");
    std::set<uint64_t> candidates;
    for (size_t i = 0; listed.present && i < listed.items.size(); ++i) {
      candidates.insert(listed.count(i));
    }
    for (uint64_t i = 0; !listed.present && i + 1 < std::min<uint64_t>(steps, 1000); ++i) {
      candidates.insert(i);
    }
    if (!candidates.empty() && *candidates.rbegin() >= steps) {
      return t_.Refuse(listed, absl::StrCat("there are no steps beyond ", steps, " - 1"));
    }
    if (candidates.erase(steps - 1) > 0) {
      t_.Differs(listed, "the last step is never stochastic, for its density is degenerate");
    }
    if (candidates.empty()) return t_.Refuse(listed, "leaves no stochastic step");
    if (drawn.count() == 0) return t_.Refuse(drawn, "at least one stochastic step is trained");
    const uint64_t first = *candidates.begin();
    const uint64_t span = *candidates.rbegin() - first + 1;
    t_.Set("sampling.sde_first", static_cast<double>(first), listed);
    t_.Set("sampling.sde_count", static_cast<double>(span), listed);
    const bool gaps = span > candidates.size();
    if (drawn.count() >= candidates.size()) {
      t_.Set("sampling.window.kind", gaps ? "fixed" : "all", drawn);
      if (gaps) {
        t_.Set("sampling.window.steps", absl::StrCat("[", absl::StrJoin(candidates, ", "), "]"),
               listed);
      }
    } else if (gaps) {
      t_.Refuse(listed, "steps are drawn from a range without gaps");
    } else {
      t_.Set("sampling.window.kind", "subset", drawn);
      t_.Set("sampling.window.size", drawn.text(), drawn);
    }
  }

  void Batch() {
    const ForeignSetting updates = t_.Get("train.gradient_step_per_epoch");
    const ForeignSetting accumulation = t_.Get("train.gradient_accumulation_steps");
    if (absl::EqualsIgnoreCase(accumulation.text(), "auto")) {
      return t_.Set("batch.updates", updates.text(), updates);
    }
    uint64_t each = 0;
    if (!absl::SimpleAtoi(accumulation.text(), &each) || each == 0) {
      return t_.Refuse(accumulation, "expected `auto` or a whole number above 0");
    }
    const uint64_t images =
        t_.Get("train.unique_sample_num_per_epoch").count() * t_.Get("train.group_size").count();
    const uint64_t at_once = std::max<uint64_t>(1, t_.Get("num_processes").count()) *
                             std::max<uint64_t>(1, t_.Get("train.per_device_batch_size").count());
    const uint64_t per_update = at_once * each;
    if (images == 0 || images % per_update != 0) {
      return t_.Refuse(accumulation,
                       absl::StrCat("an update of ", per_update, " images (times ", at_once,
                                    " at once) does not divide the epoch's ", images,
                                    "; take `auto`, and gradient_step_per_epoch updates"));
    }
    t_.Set("batch.updates", absl::StrCat(images / per_update), accumulation);
  }

  void Advantages() {
    const ForeignSetting global = t_.Get("train.global_std");
    t_.Set("method.advantage_std", global.flag() ? "global" : "group", global);
    t_.Set("method.advantage_divisor", "floor", global);
    t_.Set("method.advantage_epsilon", kAdvantageFloor, global);
    t_.Choose("method.reward_mix", t_.Get("train.advantage_aggregation"),
              {{"sum", "sum"}, {"gdpo", "gdpo"}});
    const ForeignSetting limit = t_.Get("train.adv_clip_range");
    if (limit.items.size() == 2 && limit.number(0) != -limit.number(1)) {
      return t_.Refuse(limit, "advantages are clipped at the same distance on both sides");
    }
    t_.Set("method.advantage_clip", std::abs(limit.number(limit.items.size() - 1)), limit);
  }

  void ClipRange() {
    const ForeignSetting range = t_.Get("train.clip_range");
    t_.Set("method.clip_range", std::abs(range.number()), range);
    if (range.items.size() == 2 && range.number(1) != -range.number(0)) {
      t_.Set("method.clip_range_high", range.number(1), range);
    }
  }

  void Kl(bool densities) {
    const ForeignSetting weight = t_.Get("train.kl_beta");
    t_.Set("method.kl_weight", weight.text(), weight);
    if (weight.number() == 0) return;
    const ForeignSetting kind = t_.Get("train.kl_type");
    const bool velocities = kind.present ? kind.text() == "v-based" : !densities;
    if (!velocities) {
      return t_.Refuse(kind,
                       "their distance of latents is not divided by the step's variance and has no "
                       "counterpart: take v-based, and choose kl_beta again (about 1e-3)");
    }
    t_.Set("method.kl_space", "velocity", kind);
    t_.Set("method.kl_all_steps", "true", kind);
    t_.Set("method.zero_variance", "unmasked", weight);  // Groups without a signal train the KL.
    t_.Allow(t_.Get("train.kl_weight"), {"Uniform"}, "the distance weighs the same at all times");
  }

  void Method() {
    const ForeignSetting trainer = t_.Get("train.trainer_type");
    if (!t_.Choose("method.name", trainer,
                   {{"grpo", "grpo"}, {"grpo-guard", "guard"}, {"nft", "nft"}, {"awm", "awm"}})) {
      return;
    }
    t_.Set("replay.fraction", "0", trainer);
    forward_ = trainer.text() == "nft" || trainer.text() == "awm";
    Kl(/*densities=*/!forward_);
    if (trainer.text() != "nft") ClipRange();
    if (trainer.text() == "grpo-guard") t_.Set("method.guard.time_weight", "false", trainer);
    if (!forward_) return;
    Times();
    if (trainer.text() == "nft") {
      const ForeignSetting beta = t_.Get("train.nft_beta");
      t_.Set("method.nft.beta", beta.text(), beta);
      return;
    }
    t_.Choose("method.awm.weighting", t_.Get("train.awm_weighting"),
              {{"Uniform", "uniform"},
               {"t", "linear"},
               {"t**2", "square"},
               {"huber", "huber"},
               {"ghuber", "general_huber"}});
    const ForeignSetting power = t_.Get("train.ghuber_power");
    t_.Set("method.awm.power", power.text(), power);
    const ForeignSetting pull = t_.Get("train.ema_kl_beta");
    t_.Set("method.old_kl_weight", pull.text(), pull);
    const ForeignSetting off = t_.Get("train.off_policy");
    if (off.flag()) t_.Refuse(off, "awm samples with the policy itself");
  }

  void Times() {
    const ForeignSetting count = t_.Get("train.num_train_timesteps");
    t_.Set("method.times.count", count.text(), count);
    const ForeignSetting strategy = t_.Get("train.time_sampling_strategy");
    const bool known = t_.Choose("method.times.sampler", strategy,
                                 {{"discrete", "discrete"},
                                  {"discrete_with_init", "discrete"},
                                  {"discrete_wo_init", "discrete_without_init"},
                                  {"uniform", "uniform"},
                                  {"logit_normal", "logit_normal"}});
    const ForeignSetting shift = t_.Get("train.time_shift");
    t_.Set("method.times.shift", shift.text(), shift);
    if (known && !absl::StartsWith(strategy.text(), "discrete")) {
      t_.Differs(shift,
                 "shift pushes times to noise, as in AWM's own code; theirs to the clean side");
    }
    const ForeignSetting range = t_.Get("train.timestep_range");
    if (range.items.size() == 2 && range.number(0) != 0) {
      return t_.Refuse(range, "times begin at the noisiest level: the range must begin at 0");
    }
    t_.Set("method.times.fraction", range.number(range.items.size() - 1), range);
  }

  // Flow-Factory's running average: of the weights for evaluation, or the old policy of nft and
  // awm.
  void Averages() {
    const ForeignSetting decay = t_.Get("train.ema_decay");
    const ForeignSetting every = t_.Get("train.ema_update_interval");
    if (forward_) return OldPolicy(decay, every);
    if (decay.number() == 0) return NoAverage(decay);
    const double updates = t_.Get("train.num_inner_epochs").number() *
                           std::max<double>(1, t_.config().batch().updates());
    const double apart = std::max(1., every.number()) * updates;
    // The same memory in updates: its average moves every so many epochs, oxbow's after every
    // update.
    t_.Set("ema.decay_max", std::round(std::pow(decay.number(), 1 / apart) * 1e6) / 1e6, decay);
    t_.Differs(decay, absl::StrFormat("the average follows every update here instead of every %g: "
                                      "ema.decay_max is its root",
                                      apart));
  }

  void NoAverage(const ForeignSetting& decay) {
    t_.Set("ema.enabled", "false", decay);
    t_.Set("eval.use_ema", "false", decay);
  }

  void OldPolicy(const ForeignSetting& decay, const ForeignSetting& every) {
    NoAverage(decay);
    const ForeignSetting off = t_.Get("train.off_policy");
    if (t_.Get("train.trainer_type").text() == "nft" && !off.flag()) {
      t_.Set("method.old_policy.shape", "constant", off);
      t_.Set("method.old_policy.decay", "0", off);
      return t_.Differs(off, "the old policy is the policy at the start of a learner step");
    }
    t_.Choose("method.old_policy.shape", t_.Get("train.ema_decay_schedule"),
              {{"constant", "constant"},
               {"power", "power"},
               {"linear", "linear"},
               {"piecewise_linear", "piecewise_linear"},
               {"cosine", "cosine"},
               {"warmup_cosine", "warmup_cosine"}});
    t_.Set("method.old_policy.decay", decay.text(), decay);
    t_.Set("method.old_policy.every", every.text(), every);
    for (const auto& [theirs, ours] :
         {std::pair("train.ramp_rate", "method.old_policy.rate"),
          std::pair("train.flat_steps", "method.old_policy.flat"),
          std::pair("train.warmup_steps", "method.old_policy.warmup")}) {
      const ForeignSetting s = t_.Get(theirs);
      t_.Set(ours, s.text(), s);
    }
  }

  // Room for the latents of two steps, with 16 channels and an eighth of the image's height and
  // width.
  void Experience() {
    const v1::RunConfig& c = t_.config();
    const double latents = forward_ ? 1 : c.sampling().sde_count() + 1;
    const double bytes = c.sampling().storage() == v1::STORAGE_D_TYPE_F32 ? 4 : 2;
    const double images = 2. * c.batch().groups() * c.batch().group_size();
    const double needed =
        images * latents * bytes * 16 * (c.sampling().height() / 8.) * (c.sampling().width() / 8.);
    if (needed <= static_cast<double>(c.services().sink_bytes_max())) return;
    ForeignSetting sizes = t_.Get("train.unique_sample_num_per_epoch");
    sizes.path = "sizes of batch and image";
    t_.Set("services.sink_bytes_max", std::ceil(needed / kGibibyte) * kGibibyte, sizes);
  }

  void Optimizer() {
    if (t_.settings().SizeOf("optimizers") > 1) {
      t_.Refuse(t_.Get("optimizers[1].learning_rate"), "one policy is trained, with one optimiser");
    }
    for (const auto& [theirs, ours] : {std::pair("learning_rate", "optimizer.learning_rate"),
                                       std::pair("weight_decay", "optimizer.weight_decay"),
                                       std::pair("eps", "optimizer.epsilon"),
                                       std::pair("max_grad_norm", "optimizer.grad_norm_max")}) {
      const ForeignSetting s = t_.Get(absl::StrCat("optimizers[0].", theirs));
      t_.Set(ours, s.text(), s);
    }
    const ForeignSetting betas = t_.Get("optimizers[0].betas");
    if (betas.items.size() != 2) return t_.Refuse(betas, "expected a list of two numbers");
    t_.Set("optimizer.beta1", betas.items[0], betas);
    t_.Set("optimizer.beta2", betas.items[1], betas);
  }

  Translation& t_;
  const ForeignModel& model_;
  bool forward_ = false;  // nft or awm.
};

}  // namespace

void TranslateMethod(Translation& t) { MethodSections(t).All(); }

}  // namespace oxbow::config
