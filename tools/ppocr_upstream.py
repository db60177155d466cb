# SPDX-License-Identifier: Apache-2.0
"""PaddleOCR 3's pipeline around its two networks, written a second time with cv2 and pyclipper.

Source: DetResizeForTest, NormalizeImage, DBPostProcess, SortQuadBoxes, CropByPolys, OCRReisizeNormImg, ToBatch and
CTCLabelDecode of PaddleX 3, with the numbers of its pipeline OCR. Pictures are [H, W, 3] arrays of bytes as they come: the
networks' convention is BGR, and flow_grpo and Flow-Factory hand RGB over.
"""
import math

import cv2
import numpy as np
import pyclipper
import torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
THRESHOLD, BOX_THRESHOLD, UNCLIP_RATIO, CANDIDATES, SIDE_MIN = 0.3, 0.6, 1.5, 1000, 3
LINE_HEIGHT, LINE_WIDTH, LINE_WIDTH_MAX, LINES = 48, 320, 3200, 6


def detection_size(height, width):
    """((height, width) with padding, (height, width) of the map)."""
    padded = (max(32, height), max(32, width)) if height + width < 64 else (height, width)
    ratio = 64 / min(padded) if min(padded) < 64 else 1.0
    sides = [int(side * ratio) for side in padded]
    if max(sides) > 4000:
        ratio = 4000 / max(sides)
        sides = [int(side * ratio) for side in sides]
    return padded, tuple(max(round(side / 32) * 32, 32) for side in sides)


def detection_input(picture):
    (height, width), (to_height, to_width) = detection_size(*picture.shape[:2])
    padded = np.zeros((height, width, 3), np.uint8)
    padded[:picture.shape[0], :picture.shape[1]] = picture
    if (height, width) != (to_height, to_width):
        padded = cv2.resize(padded, (to_width, to_height))
    pixels = padded.astype(np.float32)
    for channel in range(3):
        pixels[..., channel] *= (1 / 255) / STD[channel]
        pixels[..., channel] += -MEAN[channel] / STD[channel]
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None]


def in_order(corners):
    """Upper left, upper right, lower right, lower left."""
    corners = sorted(list(corners), key=lambda corner: corner[0])
    left, right = sorted(corners[:2], key=lambda c: c[1]), sorted(corners[2:], key=lambda c: c[1])
    return np.array([left[0], right[0], right[1], left[1]])


def rectangle(points):
    found = cv2.minAreaRect(points)
    return in_order(cv2.boxPoints(found)), min(found[1])


def unclipped(box, ratio):
    distance = cv2.contourArea(box) * ratio / cv2.arcLength(box, True)
    offset = pyclipper.PyclipperOffset()
    offset.AddPath(box, pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    return np.array(offset.Execute(distance)[0])


def box_score(probabilities, box):
    height, width = probabilities.shape
    left, right = (max(0, min(int(f(v)), width - 1)) for f, v in ((math.floor, box[:, 0].min()), (math.ceil, box[:, 0].max())))
    top, bottom = (max(0, min(int(f(v)), height - 1)) for f, v in ((math.floor, box[:, 1].min()), (math.ceil, box[:, 1].max())))
    mask = np.zeros((bottom - top + 1, right - left + 1), np.uint8)
    cv2.fillPoly(mask, (box - np.array([left, top], np.float32)).reshape(1, -1, 2).astype(np.int32), 1)
    return cv2.mean(probabilities[top:bottom + 1, left:right + 1], mask)[0]


def boxes_of(probabilities, height, width):
    """[(box of whole pixels [4, 2] on a picture of that size, score)], as regions are found."""
    bitmap = ((probabilities > THRESHOLD) * 255).astype(np.uint8)
    contours, _ = cv2.findContours(bitmap, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    scale, boxes = np.array([width / bitmap.shape[1], height / bitmap.shape[0]]), []
    for contour in contours[:CANDIDATES]:
        box, side = rectangle(contour)
        if side < SIDE_MIN:
            continue
        score = box_score(probabilities, box)
        if score < BOX_THRESHOLD:
            continue
        box, side = rectangle(unclipped(box, UNCLIP_RATIO).reshape(-1, 1, 2).astype(np.int32))
        if side < SIDE_MIN + 2:
            continue
        boxes.append((np.clip(np.round(box.astype(np.float64) * scale), 0, [width, height]).astype(np.int16), score))
    return boxes


def reading_order(boxes):
    boxes = sorted(boxes, key=lambda box: (box[0][1], box[0][0]))
    for last in range(1, len(boxes)):
        for at in range(last, 0, -1):
            above, here = boxes[at - 1][0], boxes[at][0]
            if not (abs(int(here[1]) - int(above[1])) < 10 and here[0] < above[0]):
                break
            boxes[at - 1], boxes[at] = boxes[at], boxes[at - 1]
    return boxes


def crop(picture, box):
    """The line of text in a box; None where it has no pixel."""
    corners, _ = rectangle(box.astype(np.int32))
    width = int(max(np.linalg.norm(corners[0] - corners[1]), np.linalg.norm(corners[2] - corners[3])))
    height = int(max(np.linalg.norm(corners[0] - corners[3]), np.linalg.norm(corners[1] - corners[2])))
    if width < 1 or height < 1:
        return None
    onto = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    line = cv2.warpPerspective(picture, cv2.getPerspectiveTransform(corners, onto), (width, height), borderMode=cv2.BORDER_REPLICATE,
                               flags=cv2.INTER_CUBIC)
    return np.rot90(line) if height / width >= 1.5 else line


def line_widths(height, width):
    """(width that the line is resized to, width with the grey behind it)."""
    padded = int(LINE_HEIGHT * max(LINE_WIDTH / LINE_HEIGHT, width / height))
    if padded > LINE_WIDTH_MAX:
        return LINE_WIDTH_MAX, LINE_WIDTH_MAX
    return min(math.ceil(LINE_HEIGHT * (width / height)), padded), padded


def line_batches(lines):
    """[(numbers of lines, pixels [n, 3, 48, W])]: by width over height, six at a time, as wide as the widest."""
    order = sorted(range(len(lines)), key=lambda i: lines[i].shape[1] / lines[i].shape[0])
    for begin in range(0, len(order), LINES):
        numbers = order[begin:begin + LINES]
        widths = [line_widths(*lines[i].shape[:2]) for i in numbers]
        pixels = np.zeros((len(numbers), 3, LINE_HEIGHT, max(padded for _, padded in widths)), np.float32)
        for row, (i, (resized, _)) in enumerate(zip(numbers, widths)):
            line = cv2.resize(np.ascontiguousarray(lines[i]), (resized, LINE_HEIGHT)).astype(np.float32)
            pixels[row, :, :, :resized] = (line.transpose(2, 0, 1) / 255 - 0.5) / 0.5
        yield numbers, torch.from_numpy(pixels)


def decoded(probabilities, characters):
    """(text, confidence) of one line's [steps, classes]."""
    best, classes = probabilities.max(-1)
    kept = classes != 0
    kept[1:] &= classes[1:] != classes[:-1]
    text = "".join(characters[c] for c in classes[kept])
    return text, best[kept].mean().item() if kept.any() else 0.0


def read(picture, detector, recogniser, characters, confidence_min=0.0):
    """[(box, text, confidence)] of a picture in reading order; networks are functions of pixels."""
    probabilities = detector(detection_input(picture))[0, 0].numpy()
    boxes = reading_order([box for box, _ in boxes_of(probabilities, *picture.shape[:2])])
    cropped = [(box, crop(picture, box)) for box in boxes]
    boxes, lines = [box for box, line in cropped if line is not None], [line for _, line in cropped if line is not None]
    texts = [None] * len(lines)
    for numbers, pixels in line_batches(lines):
        for number, row in zip(numbers, recogniser(pixels)):
            texts[number] = decoded(row, characters)
    return [(box, *text) for box, text in zip(boxes, texts) if text[1] >= confidence_min]
