# SPDX-License-Identifier: Apache-2.0
"""Prompts of sixty words in five scripts, as people write them for large models."""
import random

WORDS = 60
SCRIPTS = {
    "latin": "une vieille maison près du fleuve with tall windows à l'aube, über den Dächern Nebel, señora con sombrero rojo, "
             "a small brown dog under the wooden table, coupe de fruits, oil on canvas, fine detail, warm light from the left, "
             "café crème, straße, naïve style, shallow depth of field, 35mm film",
    "chinese": "清晨 薄雾 笼罩 山谷 一座 古老 石桥 横跨 溪流 桥上 行人 撑着 红色 纸伞 远处 松树 覆盖 白雪 屋檐 灯笼 微光 水面 倒影 清晰 写实 风格 电影 光线 "
               "细节 丰富 构图 平衡",
    "cyrillic": "старый деревянный дом на берегу реки, утренний туман над водой, красная лодка у причала, мальчик с собакой, "
                "высокие сосны, мягкий свет слева, масло на холсте, тонкие детали, спокойное настроение, осенние листья",
    "arabic": "بيت قديم قرب النهر، ضباب الصباح فوق الماء، قارب أحمر عند الشاطئ، طفل مع كلب صغير، أشجار عالية، ضوء ناعم من اليسار، ألوان "
              "زيتية، تفاصيل دقيقة، हिन्दी में लिखा एक बोर्ड, पुराना घर, नदी के किनारे",
    "emoji": "🏠 near the 🌊 at 🌅 , a 🐕 and a 👩🏽‍🌾 with 🍎🍐🍇 , 🇫🇷 flag , ❤️ on the door , soft ✨ light , 📷 35mm , 🌲🌲🌲 behind , 👨‍👩‍👧 on the path",
}


def prompts(count, seed):
    """`count` different prompts, script by script in turn."""
    draw, scripts = random.Random(seed), list(SCRIPTS)
    return [_prompt(draw, scripts[number % len(scripts)]) for number in range(count)]


def _prompt(draw, script):
    words = SCRIPTS[script].split()
    return ("" if script == "chinese" else " ").join(draw.choice(words) for _ in range(WORDS))
