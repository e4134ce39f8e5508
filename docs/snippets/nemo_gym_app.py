from ludus.integrations.nemo_gym import LudusResourcesServer

if __name__ == "__main__":
    LudusResourcesServer.run_webserver()
