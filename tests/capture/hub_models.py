"""Models of the transformers package beyond those in models.py, tiny and with random weights: what the sweep is made
of.

An entry is a model class, what its configuration has beside TINY, and what its step is given. Sizes are named as
configurations name them, so that one table serves all; nothing here is a rule of Stepgraph's.
"""

import inspect

import torch

BATCH, LENGTH, WORDS, CLASSES, IMAGE = 2, 16, 96, 3, 32

TINY = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 16, "emb_dim": 32, "embedding_size": 16,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_blocks": 2, "num_blocks": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "attention_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_encoder_attention_heads": 4,
    "num_decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64, "ffn_dim": 64,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "hidden_dim": 64, "d_ff": 64, "dff": 64, "d_inner": 64, "d_kv": 8,
    "d_head": 8, "moe_intermediate_size": 16, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "vocab_size": WORDS, "max_position_embeddings": 64, "n_positions": 64, "context_length": 64, "max_seq_len": 64,
    "image_size": IMAGE, "patch_size": 8, "use_cache": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "decoder_start_token_id": 1,
}


def _config(config_class, more):
    """A configuration of TINY sizes without dropout."""
    known = set(inspect.signature(config_class).parameters) - set(config_class.attribute_map)
    tiny = {name: value for name, value in TINY.items() if name in known}
    config = config_class(**{**tiny, "num_labels": CLASSES, **more})
    for part in [config, *(value for value in vars(config).values() if hasattr(value, "to_dict"))]:
        for name, value in vars(part).items():
            if isinstance(value, float) and ("drop" in name or name in ("router_jitter_noise", "mask_time_prob")):
                setattr(part, name, 0.0)
    return config


def _model(name, more):
    import transformers

    found = getattr(transformers, name)
    return found(_config(found.config_class, more)).train(name not in EVALUATED)


def spread(output):
    """A loss of every float that a model returns, where it has none of its own."""
    leaves = torch.utils._pytree.tree_leaves(output.to_tuple() if hasattr(output, "to_tuple") else output)
    floats = [leaf
              for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.requires_grad]
    return sum(leaf.float().square().mean() for leaf in floats)


def words(*shape, count=WORDS):
    return torch.randint(3, count, shape)


# What a step is given, by kind.


def causal(length=LENGTH):
    ids = words(BATCH, length)
    return dict(loss_fn=None, inputs={"input_ids": ids, "labels": ids.clone()})


def masked(length=LENGTH):
    mask = torch.ones(BATCH, length, dtype=torch.int64)
    mask[-1, length - 2 :] = 0
    return dict(loss_fn=None,
                inputs={"input_ids": words(BATCH, length), "attention_mask": mask, "labels": words(BATCH, length)})


def sentence(length=LENGTH):
    return dict(loss_fn=None, inputs={"input_ids": words(BATCH, length), "labels": torch.arange(BATCH) % CLASSES})


def translation(length=LENGTH):
    return dict(loss_fn=None, inputs={"input_ids": words(BATCH, length), "labels": words(BATCH, 9)})


def image(size=IMAGE):
    labels = torch.arange(BATCH) % CLASSES
    return dict(loss_fn=None, inputs={"pixel_values": torch.randn(BATCH, 3, size, size), "labels": labels})


def image_only(size=IMAGE):
    return dict(loss_fn=spread, inputs={"pixel_values": torch.randn(BATCH, 3, size, size)})


def segments(size=IMAGE):
    labels = torch.randint(0, CLASSES, (BATCH, size, size))
    return dict(loss_fn=None, inputs={"pixel_values": torch.randn(BATCH, 3, size, size), "labels": labels})


def text_and_image(**more):
    inputs = {"input_ids": words(BATCH, 8), "pixel_values": torch.randn(BATCH, 3, IMAGE, IMAGE), **more}
    return dict(loss_fn=None, inputs=inputs)


def sound(samples=400):
    return dict(loss_fn=None,
                inputs={"input_values": torch.randn(BATCH, samples), "labels": torch.arange(BATCH) % CLASSES})


def speech(samples=400):
    return dict(loss_fn=None, inputs={"input_values": torch.randn(BATCH, samples), "labels": words(BATCH, 4, count=30)})


_SOUND = dict(
    conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2, classifier_proj_size=16, layerdrop=0.0, apply_spec_augment=False,
)
_TEXT_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
               "max_position_embeddings", "eos_token_id", "pad_token_id", "bos_token_id")
_IMAGE_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size",
                "patch_size")
_TOWERS = dict(text_config={k: TINY[k] for k in _TEXT_SIZES}, vision_config={k: TINY[k] for k in _IMAGE_SIZES},
               projection_dim=16)
_RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic",
           "out_features": ["stage2"]}
_STAGES = dict(depths=(1, 1), hidden_sizes=(8, 16))
_SERIES = dict(prediction_length=4, context_length=8, lags_sequence=[1, 2], num_time_features=1)


def series():
    past = 10
    inputs = {
        "past_values": torch.randn(BATCH, past).abs(), "past_time_features": torch.randn(BATCH, past, 1),
        "past_observed_mask": torch.ones(BATCH, past), "future_values": torch.randn(BATCH, 4).abs(),
        "future_time_features": torch.randn(BATCH, 4, 1),
    }  # fmt: skip
    return dict(loss_fn=None, inputs=inputs)


def patches(channels=2, length=32, ahead=4):
    return dict(loss_fn=None, inputs={"past_values": torch.randn(BATCH, length, channels),
                                      "future_values": torch.randn(BATCH, ahead, channels)})


# Model class, configuration beside TINY, what it is given.
ENTRIES = [
    # decoders
    ("OPTForCausalLM", {}, causal),
    ("FalconForCausalLM", dict(alibi=True), causal),
    ("FalconForCausalLM", dict(new_decoder_architecture=True, num_kv_heads=2), causal),
    ("GPTNeoForCausalLM", dict(attention_types=[[["global", "local"], 1]], window_size=4), causal),
    ("GPTNeoXForCausalLM", {}, causal),
    ("GPTJForCausalLM", dict(rotary_dim=4), causal),
    ("BloomForCausalLM", {}, causal),
    ("Gemma2ForCausalLM", dict(sliding_window=4), causal),
    ("Gemma3ForCausalLM", dict(sliding_window=4), causal),
    ("Qwen3ForCausalLM", {}, causal),
    ("Olmo2ForCausalLM", {}, causal),
    ("Phi3ForCausalLM", {}, causal),
    ("MptForCausalLM", {}, causal),
    ("CTRLLMHeadModel", {}, causal),
    ("XGLMForCausalLM", {}, causal),
    ("BioGptForCausalLM", {}, causal),
    ("StableLmForCausalLM", {}, causal),
    ("CohereForCausalLM", {}, causal),
    # mixtures of experts
    ("Qwen3MoeForCausalLM", dict(experts_implementation="grouped_mm"), causal),
    ("Qwen3MoeForCausalLM", dict(experts_implementation="batched_mm"), causal),
    ("MixtralForCausalLM", dict(experts_implementation="eager"), causal),
    ("GptOssForCausalLM", dict(sliding_window=4, experts_implementation="grouped_mm"), causal),
    ("DeepseekV2ForCausalLM",
     dict(num_key_value_heads=4, kv_lora_rank=8, q_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
          n_routed_experts=4, n_shared_experts=1, experts_implementation="grouped_mm"), causal),
    ("GraniteMoeForCausalLM", {}, causal),
    ("SwitchTransformersForConditionalGeneration",
     dict(num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, decoder_start_token_id=1), translation),
    # state space, recurrence, long context
    ("RwkvForCausalLM", {}, lambda: causal(6)),
    ("Mamba2ForCausalLM", dict(num_heads=8, n_groups=2, state_size=8, chunk_size=4), causal),
    ("FalconMambaForCausalLM", dict(state_size=4), lambda: causal(6)),
    ("JambaForCausalLM",
     dict(attn_layer_period=2, attn_layer_offset=1, use_mamba_kernels=False, mamba_d_state=4,
          experts_implementation="grouped_mm"), lambda: causal(6)),
    ("RecurrentGemmaForCausalLM", dict(num_hidden_layers=3, head_dim=8, attention_window_size=4), lambda: causal(6)),
    ("xLSTMForCausalLM", dict(mode="inference", chunk_size=4, autocast_kernel_dtype="float32"), causal),
    ("Qwen3NextForCausalLM",
     dict(linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
          shared_expert_intermediate_size=16, experts_implementation="grouped_mm",
          layer_types=["linear_attention", "full_attention"]), causal),
    ("ReformerForMaskedLM",
     dict(attn_layers=["local", "lsh"], axial_pos_shape=(8, 8), axial_pos_embds_dim=(16, 16), attention_head_size=8,
          feed_forward_size=64, num_buckets=2, local_attn_chunk_length=4, lsh_attn_chunk_length=4, hash_seed=1),
     lambda: masked(64)),
    ("XLNetLMHeadModel", {}, causal),
    ("LongformerForMaskedLM", dict(attention_window=4), masked),
    ("LEDForConditionalGeneration",
     dict(attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64), translation),
    ("BigBirdForMaskedLM", dict(block_size=2, num_random_blocks=1), lambda: masked(32)),
    ("BigBirdPegasusForConditionalGeneration", dict(block_size=2, num_random_blocks=1), lambda: translation(32)),
    ("LongT5ForConditionalGeneration", dict(local_radius=3, decoder_start_token_id=1), translation),
    # encoders
    ("DistilBertForMaskedLM", {}, masked),
    ("AlbertForMaskedLM", {}, masked),
    ("RobertaForMaskedLM", dict(max_position_embeddings=80), masked),
    ("ElectraForMaskedLM", {}, masked),
    ("DebertaForMaskedLM", dict(relative_attention=True, pos_att_type=["c2p", "p2c"]), masked),
    ("DebertaV2ForMaskedLM", dict(relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=4), masked),
    ("ConvBertForMaskedLM", {}, masked),
    ("FNetForMaskedLM", {}, lambda: causal()),
    ("FunnelForMaskedLM", dict(block_sizes=[1, 1]), masked),
    ("MobileBertForMaskedLM", dict(hidden_size=32, intra_bottleneck_size=16, true_hidden_size=16), masked),
    ("MPNetForMaskedLM", {}, masked),
    ("NystromformerForMaskedLM", dict(num_landmarks=16, segment_means_seq_len=16, conv_kernel_size=3), causal),
    ("YosoForMaskedLM", dict(use_expectation=True), masked),
    ("SqueezeBertForMaskedLM", dict(embedding_size=32), masked),
    ("RoFormerForMaskedLM", {}, masked),
    ("ModernBertForMaskedLM", dict(local_attention=8), masked),
    ("CanineForSequenceClassification", dict(local_transformer_stride=4, num_hash_buckets=64), sentence),
    ("PerceiverForMaskedLM",
     dict(num_latents=8, d_latents=32, num_self_attends_per_block=2, num_self_attention_heads=4,
          num_cross_attention_heads=4, max_position_embeddings=LENGTH),
     lambda: dict(loss_fn=None, inputs={"inputs": words(BATCH, LENGTH), "labels": words(BATCH, LENGTH)})),
    ("XLMWithLMHeadModel", {}, causal),
    ("EsmForMaskedLM", {}, masked),
    # encoder and decoder
    ("LongT5ForConditionalGeneration",
     dict(encoder_attention_type="transient-global", global_block_size=4, local_radius=3, decoder_start_token_id=1),
     translation),
    ("PegasusForConditionalGeneration", {}, translation),
    ("M2M100ForConditionalGeneration", {}, translation),
    ("MBartForConditionalGeneration", {}, translation),
    ("ProphetNetForConditionalGeneration", {}, translation),
    ("NllbMoeForConditionalGeneration", dict(encoder_sparse_step=2, decoder_sparse_step=2), translation),
    ("WhisperForConditionalGeneration",
     dict(num_mel_bins=8, max_source_positions=16, max_target_positions=32),
     lambda: dict(loss_fn=None, inputs={"input_features": torch.randn(BATCH, 8, 32), "labels": words(BATCH, 9)})),
    ("Speech2TextForConditionalGeneration",
     dict(conv_channels=16, input_feat_per_channel=8),
     lambda: dict(loss_fn=None, inputs={"input_features": torch.randn(BATCH, 32, 8), "labels": words(BATCH, 9)})),
    # images
    ("BeitForImageClassification", dict(use_relative_position_bias=True), image),
    ("SwinForImageClassification", dict(depths=(1, 1), num_heads=(2, 2), window_size=2, patch_size=4), image),
    ("Swinv2ForImageClassification",
     dict(depths=(1, 1), num_heads=(2, 2), window_size=2, patch_size=4, pretrained_window_sizes=(0, 0)), image),
    ("ConvNextV2ForImageClassification", dict(num_stages=2, patch_size=4, **_STAGES), image),
    ("SegformerForSemanticSegmentation",
     dict(num_encoder_blocks=2, sr_ratios=(2, 1), patch_sizes=(7, 3), strides=(4, 2), num_attention_heads=(1, 2),
          mlp_ratios=(2, 2), decoder_hidden_size=16, **_STAGES), segments),
    ("PoolFormerForImageClassification", dict(patch_sizes=(7, 3), strides=(4, 2), padding=(2, 1), **_STAGES), image),
    ("PvtForImageClassification",
     dict(sequence_reduction_ratios=(2, 1), patch_sizes=(4, 2), strides=(4, 2), num_attention_heads=(1, 2),
          mlp_ratios=(2, 2), **_STAGES), image),
    ("LevitForImageClassification",
     dict(hidden_sizes=(16, 24, 32), num_attention_heads=(2, 2, 2), depths=(1, 1, 1), key_dim=(8, 8, 8), image_size=64,
          patch_size=16), lambda: image(64)),
    ("MobileNetV2ForImageClassification", dict(depth_multiplier=0.25), image),
    ("MobileViTForImageClassification",
     dict(hidden_sizes=(16, 24, 32), neck_hidden_sizes=(8, 8, 16, 16, 16, 24, 32), patch_size=2), lambda: image(64)),
    ("EfficientNetForImageClassification", dict(width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320), image),
    ("RegNetForImageClassification", dict(embedding_size=8, groups_width=8, **_STAGES), image),
    ("BitForImageClassification", dict(embedding_size=8, num_groups=2, **_STAGES), image),
    ("FocalNetForImageClassification",
     dict(hidden_sizes=(16, 32), depths=(1, 1), focal_levels=(2, 2), focal_windows=(3, 3), patch_size=4), image),
    ("Dinov2ForImageClassification", {}, image),
    ("CvtForImageClassification",
     dict(embed_dim=(8, 16, 16), num_heads=(1, 2, 2), depth=(1, 2, 3), drop_rate=(0.0, 0.0, 0.0),
          attention_drop_rate=(0.0, 0.0, 0.0), drop_path_rate=(0.0, 0.0, 0.0)), image),
    ("HieraForImageClassification",
     dict(image_size=(32, 32), patch_size=(3, 3), patch_stride=(2, 2), patch_padding=(1, 1), depths=(1, 1),
          num_heads=(1, 2), num_query_pool=1, masked_unit_size=(4, 4), masked_unit_attention=(True, False)), image),
    ("SwiftFormerForImageClassification",
     dict(depths=(1, 1), embed_dims=(8, 16), downsamples=(True, True)), lambda: image(64)),
    ("ViTMAEForPreTraining",
     dict(decoder_num_attention_heads=4, decoder_hidden_size=32, decoder_num_hidden_layers=1,
          decoder_intermediate_size=32),
     lambda: dict(loss_fn=None,
                  inputs={"pixel_values": torch.randn(BATCH, 3, IMAGE, IMAGE), "noise": torch.rand(BATCH, 16)})),
    ("YolosForObjectDetection", dict(image_size=(IMAGE, IMAGE), num_detection_tokens=4), image_only),
    ("DPTForDepthEstimation",
     dict(num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=(8, 8, 8, 8), fusion_hidden_size=8),
     image_only),
    ("GLPNForDepthEstimation",
     dict(num_encoder_blocks=4, depths=(1, 1, 1, 1), hidden_sizes=(8, 8, 16, 16), num_attention_heads=(1, 1, 2, 2),
          decoder_hidden_size=8), lambda: image_only(64)),
    ("DetrForObjectDetection", dict(backbone_config=_RESNET, num_queries=5), image_only),
    ("DeformableDetrForObjectDetection",
     dict(backbone_config=_RESNET, num_queries=5, num_feature_levels=2), image_only),
    ("VideoMAEForVideoClassification",
     dict(num_frames=4),
     lambda: dict(loss_fn=None,
                  inputs={"pixel_values": torch.randn(BATCH, 4, 3, IMAGE, IMAGE), "labels": torch.arange(BATCH)})),
    # text and images
    ("CLIPModel", _TOWERS, lambda: text_and_image(return_loss=True)),
    ("SiglipModel",
     {k: v for k, v in _TOWERS.items() if k != "projection_dim"}, lambda: text_and_image(return_loss=True)),
    ("BlipForConditionalGeneration", _TOWERS, lambda: text_and_image(labels=words(BATCH, 8))),
    ("OwlViTModel", _TOWERS, lambda: text_and_image(return_loss=True)),
    ("ViltForQuestionAnswering", {}, lambda: text_and_image(labels=torch.rand(BATCH, CLASSES))),
    ("GroupViTModel",
     dict(_TOWERS,
          vision_config=dict(_TOWERS["vision_config"], depths=[1, 1], num_group_tokens=[4, 0],
                             num_output_groups=[4, 4], num_hidden_layers=2),
          projection_intermediate_dim=32), lambda: text_and_image(return_loss=True)),
    # sound
    ("HubertForSequenceClassification", _SOUND, sound),
    ("WavLMForSequenceClassification", _SOUND, sound),
    ("SEWForSequenceClassification", dict(_SOUND, squeeze_factor=2), sound),
    ("Wav2Vec2ForCTC", _SOUND, speech),
    ("Wav2Vec2ConformerForSequenceClassification", dict(_SOUND, position_embeddings_type="relative"), sound),
    ("ASTForAudioClassification",
     dict(max_length=32, num_mel_bins=16, patch_size=8),
     lambda: dict(loss_fn=None, inputs={"input_values": torch.randn(BATCH, 32, 16), "labels": torch.arange(BATCH)})),
    ("EncodecModel",
     dict(num_filters=4, upsampling_ratios=[2, 2], codebook_size=8, codebook_dim=16, hidden_size=16,
          target_bandwidths=[48.0]), lambda: dict(loss_fn=spread, inputs={"input_values": torch.randn(BATCH, 1, 64)})),
    # series
    ("TimeSeriesTransformerForPrediction", _SERIES, series),
    ("InformerForPrediction", _SERIES, series),
    ("AutoformerForPrediction", dict(_SERIES, label_length=4), series),
    ("PatchTSTForPrediction",
     dict(num_input_channels=2, patch_length=8, patch_stride=8, prediction_length=4, context_length=32), patches),
    ("PatchTSMixerForPrediction",
     dict(num_input_channels=2, patch_length=8, patch_stride=8, prediction_length=4, context_length=32), patches),
]


# Draws random numbers in training that no configuration turns off.
EVALUATED = ["GroupViTModel"]

# In bfloat16, weights and activations: what PyTorch itself rounds away is what decides here.
NARROW = ["GPTNeoXForCausalLM", "Qwen3ForCausalLM", "AlbertForMaskedLM", "MBartForConditionalGeneration",
          "PegasusForConditionalGeneration", "Dinov2ForImageClassification", "SegformerForSemanticSegmentation",
          "HubertForSequenceClassification"]


def narrow(arguments):
    """The same step in bfloat16."""
    arguments["model"].to(torch.bfloat16)
    floats = {name: value.to(torch.bfloat16)
              for name, value in arguments["inputs"].items() if value.is_floating_point()}
    return {**arguments, "inputs": {**arguments["inputs"], **floats}}


def makers():
    """(name, function that makes the arguments of capture()) of each entry."""
    counts = {}
    for name, more, given in ENTRIES:
        counts[name] = counts.get(name, 0) + 1
        make = lambda n=name, m=more, g=given: dict(model=_model(n, m), **g())  # noqa: E731
        yield name + ("" if counts[name] == 1 else f" {counts[name]}"), make
        if name in NARROW:
            yield f"{name} bfloat16", lambda make=make: narrow(make())
