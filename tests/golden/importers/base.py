# SPDX-License-Identifier: Apache-2.0
"""A base.py in flow_grpo's form, re-typed."""
import ml_collections
def get_config():
    config = ml_collections.ConfigDict()
    config.run_name = ""
    config.num_epochs = 2000
    config.seed = 42
    config.num_checkpoint_limit = 5
    config.mixed_precision = "fp16"
    config.use_lora = True
    config.pretrained = pretrained = ml_collections.ConfigDict()
    pretrained.model = "runwayml/stable-diffusion-v1-5"
    config.sample = sample = ml_collections.ConfigDict()
    sample.noise_level = 0.7
    sample.same_latent = False
    sample.sde_window_size = 2
    sample.sde_window_range = (0, 10)
    config.train = train = ml_collections.ConfigDict()
    train.learning_rate = 3e-4
    train.adam_beta1 = 0.9
    train.adam_beta2 = 0.999
    train.adam_weight_decay = 1e-4
    train.adam_epsilon = 1e-8
    train.max_grad_norm = 1.0
    train.num_inner_epochs = 1
    train.cfg = True
    train.adv_clip_max = 5
    train.clip_range = 1e-4
    train.timestep_fraction = 0.99
    return config
