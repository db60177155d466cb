# SPDX-License-Identifier: Apache-2.0
"""Language models that read prompts against transformers' own: what the pipelines take of the hidden states."""
import unittest

import torch
import transformers

from export_model.self_check import randomised
from export_model.wrappers import language_models as ours

SIZES = dict(vocab_size=40, hidden_size=16, intermediate_size=20, num_attention_heads=4, num_key_value_heads=2)
VISION = dict(hidden_size=16, intermediate_size=16, num_heads=2, patch_size=2)


def side_by_side(*layers):
    return lambda states: torch.stack([states[k] for k in layers], dim=2).flatten(2)


def qwen_image():
    text = SIZES | dict(num_hidden_layers=3, rope_scaling={"type": "mrope", "mrope_section": [1, 1, 0], "rope_type": "default"})
    config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=VISION | dict(depth=1, out_hidden_size=16), vocab_size=40)
    return transformers.Qwen2_5_VLForConditionalGeneration(config), "model.language_model.", lambda states: states[-1]


def z_image():
    return transformers.Qwen3Model(transformers.Qwen3Config(**SIZES, num_hidden_layers=3, head_dim=6)), "", lambda states: states[-2]


def klein():
    return (transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, num_hidden_layers=28, head_dim=6)), "model.",
            side_by_side(9, 18, 27))


def dev():
    config = transformers.Mistral3Config(
        text_config=SIZES | dict(model_type="mistral", head_dim=6, num_hidden_layers=31),
        vision_config=dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                           head_dim=8, patch_size=4, image_size=8))
    return transformers.Mistral3ForConditionalGeneration(config), "model.language_model.", side_by_side(10, 20, 30)


class LanguageModelTest(unittest.TestCase):
    def test_they_say_what_transformers_says(self):
        ids = torch.randint(0, 40, (3, 11), generator=torch.Generator().manual_seed(1))
        right = (torch.arange(11)[None] < torch.tensor([11, 7, 2])[:, None]).float()
        for make in (qwen_image, z_image, klein, dev):
            theirs, prefix, taken = make()
            randomised(theirs.eval(), 2)
            cls = getattr(ours, type(theirs).__name__)
            config = cls.read_config(theirs.config.to_dict())
            wanted = cls.__init__.__code__.co_varnames[1:cls.__init__.__code__.co_argcount]
            module = cls(**{key: config[key] for key in wanted if config.get(key) is not None})
            weights = {key.removeprefix(prefix): value for key, value in theirs.state_dict().items() if key.startswith(prefix)}
            self.assertFalse(module.load_state_dict(weights, strict=False).missing_keys)
            for mask in (right, right.flip(1)):
                with self.subTest(make.__name__, left=mask is not right), torch.no_grad():
                    states = theirs(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
                    counted = mask >= (1 if make in (qwen_image, z_image) else 0)  # FLUX.2 takes the padding, too.
                    torch.testing.assert_close(module(ids, mask)[counted], taken(states)[counted], atol=1e-5, rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
