"""The words of drawn prompts. In random models each of them is one token."""

from __future__ import annotations

import random

WORDS: tuple[str, ...] = tuple(
    """
    acorn alley amber anchor angle ankle apple apron arch arrow artist ash aunt autumn axle badge
    baker ball bamboo banjo bank barley barn basin basket beach beacon bead bear beard beaver bell
    belt bench berry birch bird blanket boat bonfire boot border bottle bowl branch brass bread
    breeze brick bridge broom brush bucket bull bundle butter button cabin cable cactus cake camel
    camp canal candle canoe canyon carpet carrot cart castle cedar cellar chain chair chalk cheese
    cherry chest chimney circle cliff clock cloud clover coach coal coast coat cobbler coin comb
    compass copper coral corner cotton cousin crane crayon creek crow crown cup curtain daisy dance
    dawn deer desert desk dinner dish donkey dragon drawer dream drum duck dust eagle ear earth east
    elbow elder ember engine evening farmer feast feather fence fern fiddle finger fire fish flag
    flame flask flock flour flute fog forest fork fox frog frost garden garlic gate ginger glacier
    glass glove goat gold goose grain grape grass gravel guitar hail hammer harbor harp harvest hat
    hawk hazel heather hedge helmet herb hill hinge honey hook horn horse hotel ice ink inn iron
    island ivory ivy jacket jar jewel juice jungle kettle key kitchen kite kitten knee knife knot
    ladder lagoon lake lamp lantern lark lawn leaf leather lemon letter lily lime linen lion lizard
    lock log loom lotus magnet maple marble market marsh mask meadow melon mill mint mirror mitten
    moon moose morning moss moth mountain mouse mud mule museum mustard nail napkin needle nest
    north nut oak oar oasis oat ocean olive onion orange orchard otter oven owl ox oyster paddle
    palm pan paper parcel parrot path peach pear pebble pencil pepper piano pigeon pillow pine pipe
    plum pocket pond porch potato prairie puddle pumpkin quail quarry quill quilt rabbit radish raft
    rain raven reed ribbon rice ring river robin roof rope rose rug saddle sail salmon salt sand
    scarf shadow shawl sheep shell shelf ship shoe silver sky sled smoke snail snow soap soup south
    sparrow spice spider spoon spring spruce squirrel stable stone storm stove straw stream sugar
    summer sun swan sweater table tailor tea tent thistle thread thunder tiger timber toast tower
    trail train trunk tulip tunnel turtle twig umbrella uncle valley velvet village vine violin
    wagon walnut water wave wax well west whale wheat wheel whistle willow wind window wing winter
    wolf wood wool wren yarn yeast
    """.split()  # noqa: SIM905 - a list of literals would be a page of quotes
)


def random_prompt(rng: random.Random, num_words: int) -> str:
    """Draw a text of ``num_words`` words, each after a space."""
    return "".join(" " + rng.choice(WORDS) for _ in range(num_words))
