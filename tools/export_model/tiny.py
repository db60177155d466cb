"""Small configurations for checks and goldens: every part of the network is there, nothing is large."""

FLUX = dict(patch_size=1, in_channels=16, num_layers=1, num_single_layers=2, attention_head_dim=12,
            num_attention_heads=2, joint_attention_dim=10, pooled_projection_dim=6, axes_dims_rope=(2, 4, 6))

TINY = {
    # name: (class, config)
    "sd3_tiny": ("SD3Transformer2DModel", dict(
        sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=3, num_attention_heads=2,
        attention_head_dim=4, joint_attention_dim=12, caption_projection_dim=8, pooled_projection_dim=10,
        pos_embed_max_size=12, dual_attention_layers=(0, 1), qk_norm="rms_norm")),
    "flux_dev_tiny": ("FluxTransformer2DModel", FLUX | dict(guidance_embeds=True)),
    "flux_schnell_tiny": ("FluxTransformer2DModel", FLUX | dict(guidance_embeds=False)),
    "wan_tiny": ("WanTransformer3DModel", dict(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=10,
        freq_dim=16, ffn_dim=20, num_layers=2, cross_attn_norm=True, rope_max_seq_len=32)),
    "qwen_image_tiny": ("QwenImageTransformer2DModel", dict(
        patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=12, num_attention_heads=2,
        joint_attention_dim=10, axes_dims_rope=(2, 4, 6))),
    "z_image_tiny": ("ZImageTransformer2DModel", dict(
        in_channels=4, dim=24, n_layers=1, n_refiner_layers=1, n_heads=2, n_kv_heads=2, cap_feat_dim=10,
        axes_dims=[4, 4, 4], axes_lens=[256, 32, 32])),
    "flux2_dev_tiny": ("Flux2Transformer2DModel", dict(
        patch_size=1, in_channels=8, num_layers=1, num_single_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=10, timestep_guidance_channels=16, axes_dims_rope=(4, 4, 4, 4))),
    "hunyuan_video_tiny": ("HunyuanVideoTransformer3DModel", dict(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1, num_single_layers=1,
        num_refiner_layers=1, patch_size=2, patch_size_t=1, text_embed_dim=10, pooled_projection_dim=6,
        rope_axes_dim=(2, 4, 6))),
    "ltx_tiny": ("LTXVideoTransformer3DModel", dict(
        in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=8, cross_attention_dim=16, num_layers=2,
        caption_channels=10)),
}
