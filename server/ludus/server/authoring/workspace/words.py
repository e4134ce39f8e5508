"""Words from which names in generated workspaces are drawn."""

from __future__ import annotations

from typing import Final

ADJECTIVES: Final = tuple(
    "amber ancient arctic autumn azure bitter bold brave brief bright brisk broad bronze calm candid careful cedar "
    "chilly clear clever coastal cobalt copper coral crimson crisp curious daily dapper dawn deep desert distant dusty "
    "eager early eastern ebony emerald faint fair fancy fearless fleet floral foggy forest fresh frosty gentle gilded "
    "golden grand gray green hardy hazel hidden hollow humble icy indigo inland iron ivory jade jolly keen kind lively "
    "lofty lone lucid lunar maple marble meadow mellow merry misty modest mossy narrow nimble noble northern oaken "
    "olive opal open orange pale patient pearl placid plain polar proud quick quiet rapid raven ready rosy rough royal "
    "ruby rural rustic sandy scarlet serene sharp shiny silent silver simple sleek slow smooth snowy solar solid "
    "southern stark steady stony stout sturdy sunny swift tawny tidal tidy timber tranquil upland urban valiant velvet "
    "verdant violet vivid warm western wild windy winter wise witty wooden woven young zesty".split()
)
NOUNS: Final = tuple(
    "acorn anchor anvil apple arbor arrow atlas badger barley basin beacon beetle birch bishop bison bobbin bonnet "
    "bottle branch brook bucket bugle butter button cabin cactus camel candle canoe canyon carbon carpet castle cavern "
    "cello cherry chisel cider cinder circus clover cobble comet compass condor cotton cradle crater cricket crystal "
    "dagger dahlia dolphin donkey dragon drum eagle ember falcon feather fennel ferry fiddle finch flint flute fossil "
    "fountain fox galaxy garden garnet gazelle geyser ginger glacier goblet granite gravel grove hammer harbor harvest "
    "hazelnut heron hickory hornet island jasmine jigsaw juniper kernel kettle kite ladder lagoon lantern lark lemon "
    "lichen lily linen lizard lobster locket lotus magnet magpie mantle marmot meteor mill mirror mitten monsoon "
    "mountain mustard nectar nettle nutmeg oasis onion orbit orchard orchid otter oyster paddle panther parsley peach "
    "pebble pelican pepper pigeon pillow pine planet plum pocket pollen poplar prairie prism puffin pumpkin quarry "
    "quartz quill rabbit radish raisin reef ribbon river robin rocket saddle saffron sail salmon sandal sparrow spruce "
    "squirrel stork summit sunset swallow tangerine temple thimble thistle thunder tiger timberland tower trellis "
    "trumpet tulip tunnel turnip turtle valley vessel village walnut walrus weasel willow window zebra zephyr".split()
)
FIRST: Final = tuple(
    "Ada Amir Anna Bela Bruno Carla Cem Chidi Dana Dario Edda Elif Emil Femi Fiona Goran Greta Hana Hugo Ines Ivan "
    "Jana Jonas Kaya Kofi Lena Liam Lucia Mara Mei Milan Nadia Nils Noor Olga Omar Paula Pedro Quinn Rania Rosa Samir "
    "Selma Tara Theo Uma Viktor Wanda Yara Zoe".split()
)
LAST: Final = tuple(
    "Abara Acker Baranov Bauer Castell Cohen Dahl Demir Eklund Farkas Fischer Garcia Gomez Haas Hansen Ito Jensen Kaur "
    "Keller Kovac Lang Lopez Maier Moreau Nakata Novak Okafor Olsen Park Petrov Quist Ramos Rossi Sato Silva Tamm "
    "Torres Ueda Varga Vogel Weber Xu Yilmaz Zeman".split()
)
SERVICES: Final = tuple(
    "auth billing cart catalog checkout delivery export gateway inbox ingest invoice ledger mailer metrics notify "
    "orders payments pricing profile quota reports scheduler search session shipping stock sync tokens uploads "
    "worker".split()
)
CITIES: Final = tuple(
    "Aarhus Bergen Brno Cadiz Cork Delft Essen Faro Gent Graz Izmir Kyoto Leeds Lima Lyon Malmo Nantes Osaka Oulu "
    "Parma Porto Quito Riga Salta Split Tartu Turin Utrecht Varna Zadar".split()
)
