#include "tasks/compose_batch.h"

#include "base/check.h"
#include "base/philox.h"

namespace oxbow::tasks {
namespace {

// With the given probability one of `count` values, else `value`. Draws the same random numbers
// either way.
int Replaced(int value, int count, double probability, RandomStream& random) {
  const bool replaced = random.NextUniform() < probability;
  const int other = static_cast<int>(random.NextBelow(count));
  return replaced ? other : value;
}

Object Lie(const Object& object, double probability, RandomStream& random) {
  Object drawn;
  drawn.colour = Replaced(object.colour, kColourCount, probability, random);
  drawn.shape = Replaced(object.shape, kShapeCount, probability, random);
  return drawn;
}

}  // namespace

std::vector<ComposeExample> ComposeBatch(const BatchOptions& options, int64_t step,
                                         const std::vector<Scene>& prompts) {
  OXBOW_CHECK(!prompts.empty()) << "no prompts to pretrain on";
  RandomStream random(
      {.seed = options.seed, .group = static_cast<uint64_t>(step), .step = kTaskData});
  std::vector<ComposeExample> batch(options.size);
  for (ComposeExample& example : batch) {
    example.caption = prompts[random.NextBelow(prompts.size())];
    const Object first = Lie(example.caption.first, options.caption_noise, random);
    const Object second = Lie(example.caption.second, options.caption_noise, random);
    const int relation = Replaced(static_cast<int>(example.caption.relation), kRelationCount,
                                  options.caption_noise, random);
    const auto places = PlacesOf(static_cast<Relation>(relation));
    const auto [first_cell, second_cell] = places[random.NextBelow(places.size())];
    example.drawn[first_cell] = first;
    example.drawn[second_cell] = second;
    example.time = static_cast<float>(PretrainingTime(step, random));
  }
  return batch;
}

}  // namespace oxbow::tasks
