"""Small configurations for checks and goldens: every part of the network is there, nothing is large."""

TINY = {
    # name: (class, config)
    "sd3_tiny": ("SD3Transformer2DModel", dict(
        sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=3, num_attention_heads=2,
        attention_head_dim=4, joint_attention_dim=12, caption_projection_dim=8, pooled_projection_dim=10,
        pos_embed_max_size=12, dual_attention_layers=(0, 1), qk_norm="rms_norm")),
}
