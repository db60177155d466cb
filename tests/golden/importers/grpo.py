# SPDX-License-Identifier: Apache-2.0
"""Functions in the form of flow_grpo's config/grpo.py, re-typed. Nothing here is ever run."""
import os
base = None  # flow_grpo loads base.py from beside it.


def common():
    config = base.get_config()
    config.pretrained.model = "stabilityai/stable-diffusion-3.5-medium"
    config.dataset = os.path.join(os.getcwd(), "dataset/pickscore")
    config.sample.num_steps = 10
    config.sample.eval_num_steps = 40
    config.sample.guidance_scale = 4.5
    config.resolution = 512
    config.sample.global_std = True
    config.sample.train_batch_size = 9
    config.train.batch_size = config.sample.train_batch_size
    config.train.ema = True
    config.save_freq = config.eval_freq = 60
    config.reward_fn = {"pickscore": 1.0}
    return config


def pickscore():
    gpu_number = 32
    config = common()
    config.sample.num_image_per_prompt = 24
    config.sample.num_batches_per_epoch = int(48/(gpu_number*config.sample.train_batch_size/config.sample.num_image_per_prompt))
    assert config.sample.num_batches_per_epoch % 2 == 0, "even"
    config.train.gradient_accumulation_steps = config.sample.num_batches_per_epoch//2
    config.train.beta = 0.01
    return config


def without_guidance():
    gpu_number = 32
    config = common()
    config.sample.guidance_scale = 1
    config.train.cfg = False
    config.sample.num_image_per_prompt = 18
    config.sample.num_batches_per_epoch = int(64/(gpu_number*config.sample.train_batch_size/config.sample.num_image_per_prompt))
    config.train.gradient_accumulation_steps = config.sample.num_batches_per_epoch//2
    config.train.clip_range = 1e-5
    config.train.beta = 0
    config.sample.noise_level = 0.8
    config.sample.sde_window_size = 3
    config.sample.sde_window_range = (0, config.sample.num_steps//2)
    config.sample.sde_type = "cps"
    return config


def no_number():
    config = common()
    config.sample.num_image_per_prompt = 24
    config.sample.num_batches_per_epoch = 4
    config.train.gradient_accumulation_steps = 2
    return config


def from_adapter():
    config = pickscore()
    config.train.lora_path = "adapters/first"
    return config


def supervised():
    config = pickscore()
    config.train.sft = 0.1
    return config


def unknown():
    config = pickscore()
    config.train.brand_new = 3
    return config


def harmful():
    os.system("touch harm")
    return common()


def qwen_image():
    config = without_guidance()
    config.pretrained.model = "Qwen/Qwen-Image"
    config.sample.guidance_scale = 4
    config.train.cfg = True
    config.sample.sde_type = "sde"
    return config


def endless():
    return endless()


def huge():
    config = pickscore()
    config.seed = 9 ** 9 ** 9
    return config


def video_edit():
    config = pickscore()
    config.pretrained.model = "black-forest-labs/FLUX.1-Kontext-dev"
    return config
